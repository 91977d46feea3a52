(* Programs of one CTA, their schedules, and the conditions over the log of one run.
   Read docs/soundness/theorem.md first: it says what is modelled and what is not. *)
Require Import List Arith Bool ZArith Lia.
Import ListNotations.
Open Scope Z_scope.

(* ------------------------------------------------------------------ programs *)

(* An event is an instruction of a thread: the number of the thread, and its place there. Each is
   executed once: code is straight-line, as the decisions of the canonical run have made it. *)
Definition event := (nat * nat)%type.

Inductive instr :=
  | Init (b : nat)                 (* mbarrier.init; one that no instruction makes is there *)
  | Inval (b : nat)                (* mbarrier.inval *)
  | Arrive (b n : nat) (tx : N)    (* mbarrier.arrive with a count, .expect_tx with bytes *)
  | Expect (b : nat) (tx : N)      (* mbarrier.expect_tx *)
  | Complete (b : nat) (tx : N)    (* complete_tx, by an instruction or by a copy that has landed *)
  | WaitParity (b : nat) (p : bool)   (* a try_wait.parity loop; true is parity 1 *)
  | WaitToken (b : nat) (i : nat)     (* a try_wait loop with the token of this thread's arrival i *)
  | Join (n c : nat)               (* barrier.arrive, or the first half of barrier.sync, of c *)
  | Await (n : nat) (i : nat)      (* the second half of barrier.sync, whose first half is i *)
  | Follow (es : list event)       (* waits for these events: an asynchronous operation for its
                                      issue, a wait_group for the operations of its group *)
  | Read (x : nat)
  | Write (x : nat).

(* The code of each thread, and the arrivals that each mbarrier expects. *)
Record program := Program { code : list (list instr); counts : list nat }.

Definition instr_at (P : program) (e : event) : option instr :=
  nth_error (nth (fst e) (code P) []) (snd e).

Definition events (P : program) : list event :=
  flat_map (fun t => map (pair t) (seq 0 (length (nth t (code P) []))))
           (seq 0 (length (code P))).

Definition count (P : program) (b : nat) : Z := Z.of_nat (nth b (counts P) 1%nat).

Definition eqb_event (a b : event) : bool := ((fst a =? fst b) && (snd a =? snd b))%nat.

(* What an operation adds to the counts of its mbarrier: arrivals, and bytes expected (positive) or
   completed (negative). *)
Definition credit_of (i : instr) : option (nat * Z * Z) :=
  match i with
  | Arrive b n tx => Some (b, Z.of_nat n, Z.of_N tx)
  | Expect b tx => Some (b, 0, Z.of_N tx)
  | Complete b tx => Some (b, 0, - Z.of_N tx)
  | _ => None
  end.

Definition join_of (i : instr) : option (nat * Z) :=
  match i with Join n c => Some (n, Z.of_nat c) | _ => None end.

Definition wait_of (i : instr) : option nat :=
  match i with WaitParity b _ => Some b | WaitToken b _ => Some b | _ => None end.

(* The mbarrier that an instruction operates on. *)
Definition operand_of (i : instr) : option nat :=
  match credit_of i with Some (b, _, _) => Some b | None => wait_of i end.

Definition operand P e := match instr_at P e with Some i => operand_of i | None => None end.

Definition inits (P : program) (b : nat) (e : event) : bool :=
  match instr_at P e with Some (Init b') => (b' =? b)%nat | _ => false end.
Definition invals (P : program) (b : nat) (e : event) : bool :=
  match instr_at P e with Some (Inval b') => (b' =? b)%nat | _ => false end.

Definition credit P e := match instr_at P e with Some i => credit_of i | None => None end.
Definition join P e := match instr_at P e with Some i => join_of i | None => None end.
Definition wait P e := match instr_at P e with Some i => wait_of i | None => None end.

(* ------------------------------------------------------------------ schedules *)

(* pc: how many of its instructions a thread has executed. phase: how many phases of an mbarrier are
   over, the number of the open one; round: those of a named barrier. live: whether an mbarrier is. seen: of an event that was
   executed, the phase that was open at its mbarrier, or the round that it has joined. *)
Record state := State {
  pc : nat -> nat;
  seen : event -> nat;
  phase : nat -> nat; pending : nat -> Z; tx : nat -> Z;
  round : nat -> nat; joined : nat -> Z; size : nat -> Z;
  live : nat -> bool }.

Definition start (P : program) : state :=
  State (fun _ => 0%nat) (fun _ => 0%nat) (fun _ => 0%nat) (count P) (fun _ => 0)
        (fun _ => 0%nat) (fun _ => 0) (fun _ => 0)
        (fun b => negb (existsb (inits P b) (events P))).

Definition done (s : state) (e : event) : bool := (snd e <? pc s (fst e))%nat.

Definition upd {A} (f : nat -> A) (k : nat) (v : A) : nat -> A :=
  fun j => if (j =? k)%nat then v else f j.

Definition advance (s : state) (t v : nat) : state :=
  State (upd (pc s) t (S (pc s t)))
        (fun e => if eqb_event e (t, pc s t) then v else seen s e)
        (phase s) (pending s) (tx s) (round s) (joined s) (size s) (live s).

Definition set_mbarrier (s : state) (b : nat) (k : nat) (p d : Z) : state :=
  State (pc s) (seen s) (upd (phase s) b k) (upd (pending s) b p) (upd (tx s) b d)
        (round s) (joined s) (size s) (live s).

Definition set_named (s : state) (n : nat) (r : nat) (j c : Z) : state :=
  State (pc s) (seen s) (phase s) (pending s) (tx s)
        (upd (round s) n r) (upd (joined s) n j) (upd (size s) n c) (live s).

Definition set_live (s : state) (b : nat) (v : bool) : state :=
  State (pc s) (seen s) (phase s) (pending s) (tx s) (round s) (joined s) (size s)
        (upd (live s) b v).

(* Blocked: the thread has ended, or waits. Fault: what PTX leaves undefined. *)
Inductive outcome := Blocked | Fault | Ok (s : state).

Definition most : Z := 1048575.

(* A credit that neither arrives nor completes bytes: it lets no phase end. *)
Definition bare (n d : Z) : bool := (n =? 0) && (0 <=? d).

(* The phase ends, in the same step, when no arrival is pending and the bytes are in balance. *)
Definition do_credit (P : program) (s : state) (t b : nat) (n d : Z) : outcome :=
  let p' := pending s b - n in
  let d' := tx s b + d in
  let over := (p' =? 0) && (d' =? 0) in
  if (p' <? 0) || (most <? Z.abs d') || (bare n d && over) then Fault
  else let s' := advance s t (phase s b) in
       Ok (if over then set_mbarrier s' b (S (phase s b)) (count P b) 0
           else set_mbarrier s' b (phase s b) p' d').

Definition do_join (s : state) (t n : nat) (c : Z) : outcome :=
  if (c <=? 0) || ((0 <? joined s n) && negb (size s n =? c)) then Fault
  else let s' := advance s t (round s n) in
       Ok (if joined s n + 1 =? c then set_named s' n (S (round s n)) 0 c
           else set_named s' n (round s n) (joined s n + 1) c).

Definition odd (k : nat) : bool := Nat.odd k.

(* An instruction of thread t. A wait for a parity passes when the open phase has another
   one; what it has waited for is the phase before. *)
Definition execute (P : program) (s : state) (t : nat) (i : instr) : outcome :=
    match i with
    | Init b => if live s b then Fault else Ok (set_live (advance s t 0) b true)
    | Inval b => if live s b then Ok (set_live (advance s t 0) b false) else Fault
    | Arrive _ _ _ | Expect _ _ | Complete _ _ =>
        match credit_of i with
        | Some (b, n, d) => do_credit P s t b n d
        | None => Blocked
        end
    | WaitParity b p =>
        if Bool.eqb (odd (phase s b)) p then Blocked else Ok (advance s t (phase s b))
    | WaitToken b j =>
        if Bool.eqb (odd (phase s b)) (odd (seen s (t, j))) then Blocked
        else Ok (advance s t (phase s b))
    | Join n c => do_join s t n (Z.of_nat c)
    | Await n j =>
        if (seen s (t, j) <? round s n)%nat then Ok (advance s t (seen s (t, j))) else Blocked
    | Follow es => if forallb (done s) es then Ok (advance s t 0) else Blocked
    | Read _ | Write _ => Ok (advance s t 0)
    end.

Definition alive (s : state) (i : instr) : bool :=
  match operand_of i with Some b => live s b | None => true end.

(* An operation finds its mbarrier alive. *)
Definition step (P : program) (s : state) (t : nat) : outcome :=
  match instr_at P (t, pc s t) with
  | None => Blocked
  | Some i => if alive s i then execute P s t i else Fault
  end.

(* A schedule says which thread moves. It is followed from s, if no move is blocked or undefined. *)
Fixpoint run_from (P : program) (s : state) (schedule : list nat) : option state :=
  match schedule with
  | [] => Some s
  | t :: rest => match step P s t with Ok s' => run_from P s' rest | _ => None end
  end.

Definition run P schedule := run_from P (start P) schedule.

(* The log of a schedule: the events in the order in which they are executed. *)
Fixpoint log_from (pcs : nat -> nat) (schedule : list nat) : list event :=
  match schedule with
  | [] => []
  | t :: rest => (t, pcs t) :: log_from (upd pcs t (S (pcs t))) rest
  end.

Definition log schedule := log_from (fun _ => 0%nat) schedule.

Definition reachable P s := exists schedule, run P schedule = Some s.
Definition ended P s := forall e, In e (events P) -> done s e = true.
Definition stuck P s := forall t, step P s t = Blocked.

(* ------------------------------------------------------------------ order *)

(* Direct order: of a thread's instructions; of the credits of a phase before a wait that has passed
   on it; of the joins of a round before those who have waited for it; of what is followed.
   [seen] are the phases of the run. *)
Inductive edge (P : program) (seen : event -> nat) : event -> event -> Prop :=
  | edge_thread : forall t i, edge P seen (t, i) (t, S i)
  | edge_phase : forall b w e n d,
      wait P w = Some b -> In e (events P) -> credit P e = Some (b, n, d) ->
      seen w = S (seen e) -> edge P seen e w
  | edge_round : forall n j w e c,
      instr_at P w = Some (Await n j) -> In e (events P) -> join P e = Some (n, c) ->
      seen w = seen e -> edge P seen e w
  | edge_follow : forall w es e,
      instr_at P w = Some (Follow es) -> In e es -> edge P seen e w.

(* Happens-before of a run. *)
Inductive hb (P : program) (seen : event -> nat) : event -> event -> Prop :=
  | hb_edge : forall a b, edge P seen a b -> hb P seen a b
  | hb_trans : forall a b c, hb P seen a b -> edge P seen b c -> hb P seen a c.

(* [before d e]: d is in the past of e without what e itself waits for. *)
Definition before (P : program) (seen : event -> nat) (d e : event) : Prop :=
  exists i, snd e = S i /\ (d = (fst e, i) \/ hb P seen d (fst e, i)).

Definition touches (P : program) (e : event) : option (nat * bool) :=
  match instr_at P e with
  | Some (Read x) => Some (x, false)
  | Some (Write x) => Some (x, true)
  | _ => None
  end.

Definition conflict (P : program) (d e : event) : Prop :=
  fst d <> fst e /\ exists x v w,
    touches P d = Some (x, v) /\ touches P e = Some (x, w) /\ v || w = true.

(* ------------------------------------------------------------------ conditions *)

(* A wait by token names an earlier arrival of its thread on the same mbarrier, the second half of a
   barrier.sync its first half, mbarriers expect arrivals, and each has one life. *)
Definition well_formed (P : program) : Prop :=
  (forall t i b j, instr_at P (t, i) = Some (WaitToken b j) ->
     (j < i)%nat /\ exists n d, credit P (t, j) = Some (b, n, d)) /\
  (forall t i n j, instr_at P (t, i) = Some (Await n j) ->
     (j < i)%nat /\ exists c, join P (t, j) = Some (n, c)) /\
  (forall b, 0 < count P b) /\
  (forall b e e', inits P b e = true -> inits P b e' = true -> e = e') /\
  (forall b e e', invals P b e = true -> invals P b e' = true -> e = e').

Section Conditions.
Variables (P : program) (r : state).  (* r: the end of the canonical run *)
Let E := events P.
Let bef := before P (seen r).

(* A: all credits of phase k - 1 are in the past of every credit of phase k. *)
Definition cond_A := forall b e n d e' n' d',
  In e E -> In e' E -> credit P e = Some (b, n, d) -> credit P e' = Some (b, n', d') ->
  seen r e' = S (seen r e) -> bef e e'.

(* What the credits of a phase, of those that D holds of, add to its counts. *)
Definition part (f : Z * Z -> Z) (b k : nat) (e : event) : Z :=
  match credit P e with
  | Some (b', n, d) => if (b' =? b)%nat && (seen r e =? k)%nat then f (n, d) else 0
  | None => 0
  end.
Definition sum (f : event -> Z) (l : list event) : Z :=
  fold_right (fun e n => f e + n) 0 l.
Definition balanced (D : event -> bool) (b k : nat) : Prop :=
  sum (fun e => if D e then part fst b k e else 0) E = count P b /\
  sum (fun e => if D e then part snd b k e else 0) E = 0.
Definition closed (D : event -> bool) : Prop := forall d e,
  In e E -> D e = true -> bef d e -> D d = true.

(* B: no part of a phase's credits that is closed under the past has all arrivals with the bytes in
   balance, except the whole; and not even that of the last phase. *)
Definition cond_B := forall b k D, closed D -> balanced D b k ->
  (k < phase r b)%nat /\
  forall e n d, credit P e = Some (b, n, d) -> seen r e = k -> D e = true.

(* A bare expect_tx ends no phase. *)
Definition cond_B_bare := forall b x n d D,
  credit P x = Some (b, n, d) -> bare n d = true -> closed D -> D x = false ->
  (forall e, bef e x -> D e = true) ->
  ~ balanced (fun e => D e || eqb_event e x) b (seen r x).

(* The simple form of these: what neither arrives nor completes bytes comes before an arrival of its
   phase. For the last phase it is asked for where all arrivals have come. *)
Definition cond_B_simple := forall b e n d,
  In e E -> credit P e = Some (b, n, d) -> bare n d = true ->
  (seen r e = phase r b -> pending r b = 0) ->
  exists e' n' d', In e' E /\ credit P e' = Some (b, n', d') /\ 0 < n' /\
    seen r e' = seen r e /\ bef e e'.

(* B of the last phase: it lacks arrivals, or bytes. *)
Definition cond_B_last := forall e b n d,
  In e E -> credit P e = Some (b, n, d) -> pending r b = 0 -> 0 < tx r b.

(* C1: all credits of phase k - 1 are in the past of a wait for phase k. [seen r w] is k + 1. *)
Definition cond_C1 := forall w b e n d,
  In w E -> In e E -> wait P w = Some b -> credit P e = Some (b, n, d) ->
  seen r w = S (S (seen r e)) -> bef e w.

(* C2: some credit of phase k + 1, if that ends, has the wait for phase k in its past. *)
Definition cond_C2 := forall w b,
  In w E -> wait P w = Some b -> (seen r w < phase r b)%nat ->
  exists e n d, In e E /\ credit P e = Some (b, n, d) /\ seen r e = seen r w /\ bef w e.

(* N: all joins of a round are in the past of every join of the next one; they name one count. *)
Definition cond_N := forall n e c e' c',
  In e E -> In e' E -> join P e = Some (n, c) -> join P e' = Some (n, c') ->
  (seen r e' = S (seen r e) -> bef e e') /\ (seen r e' = seen r e -> c = c').

(* T: the bytes that the credits of a phase expect, and those that they complete, are in range. *)
Definition cond_T := forall b k,
  sum (part (fun c => Z.max 0 (snd c)) b k) E <= most /\
  sum (part (fun c => Z.max 0 (- snd c)) b k) E <= most.

(* I: init before every other operation, and all operations before inval. *)
Definition cond_I := forall b e o, In e E -> In o E ->
  (inits P b e = true -> operand P o = Some b \/ invals P b o = true -> bef e o) /\
  (invals P b e = true -> operand P o = Some b -> bef o e).

(* Accesses that conflict are in order. *)
Definition cond_D := forall d e,
  In d E -> In e E -> conflict P d e -> bef d e \/ bef e d.

Record certified : Prop := {
  C_ended : ended P r;
  C_A : cond_A; C_B : cond_B; C_B_bare : cond_B_bare;
  C_C1 : cond_C1; C_C2 : cond_C2; C_N : cond_N; C_I : cond_I; C_T : cond_T; C_D : cond_D }.

(* With the simple form of B. *)
Record simply_certified : Prop := {
  K_ended : ended P r;
  K_A : cond_A; K_B : cond_B_simple; K_B_last : cond_B_last;
  K_C1 : cond_C1; K_C2 : cond_C2; K_N : cond_N; K_I : cond_I; K_T : cond_T; K_D : cond_D }.
End Conditions.

(* ------------------------------------------------------------------ the claims *)

(* Every schedule reaches only states in which nothing undefined can be done, somebody can move if
   not all have ended, each event that was executed has the phase that it has in the run r, and no
   two threads are about to make accesses that conflict. *)
Definition deterministic (P : program) (r : state) : Prop := forall s, reachable P s ->
  (forall t, step P s t <> Fault) /\
  (stuck P s -> ended P s) /\
  (forall e, done s e = true -> seen s e = seen r e) /\
  (forall d e, snd d = pc s (fst d) -> snd e = pc s (fst e) -> ~ conflict P d e).

(* Every schedule that cannot be continued ends as r does, with the same happens-before. *)
Definition same_end (P : program) (r : state) : Prop := forall s, reachable P s -> stuck P s ->
  (forall e, In e (events P) -> done s e = true /\ seen s e = seen r e) /\
  (forall b, phase s b = phase r b) /\ (forall n, round s n = round r n) /\
  (forall d e, hb P (seen s) d e <-> hb P (seen r) d e).

(* One run whose log satisfies the conditions stands for all schedules. *)
Definition theorem : Prop := forall P schedule r,
  well_formed P -> run P schedule = Some r -> certified P r ->
  deterministic P r /\ same_end P r.
