(* Programs that satisfy the conditions, and the nearest that do not, by computation. *)
Require Import List Arith Bool ZArith Lia.
Require Import Tilesim.Model Tilesim.Proof Tilesim.Check.
Import ListNotations.
Open Scope nat_scope.

Definition after (P : program) (schedule : list nat) (what : state -> bool) : bool :=
  match run P schedule with Some s => what s | None => false end.

Definition all_ended P s := forallb (done s) (events P).
Definition all_blocked P s :=
  forallb (fun t => match step P s t with Blocked => true | _ => false end)
          (seq 0 (length (code P))).

(* All threads end. *)
Definition ends P schedule := after P schedule (all_ended P).
(* Nobody can move, although not all have ended. *)
Definition deadlocks P schedule :=
  after P schedule (fun s => all_blocked P s && negb (all_ended P s)).
(* Two threads are about to make accesses that conflict. *)
Definition races P schedule d e := after P schedule (fun s =>
  (snd d =? pc s (fst d)) && (snd e =? pc s (fst e)) && conflictb P d e).
(* A thread is about to do what is undefined. *)
Definition faults P schedule t := after P schedule (fun s =>
  match step P s t with Fault => true | _ => false end).

Lemma after_true : forall P schedule what, after P schedule what = true ->
  exists s, reachable P s /\ what s = true.
Proof.
  unfold after. intros P schedule what H. destruct (run P schedule) as [s|] eqn:E; [|discriminate].
  exists s. split; [exists schedule|]; assumption.
Qed.

(* Each of these shows that a program is not deterministic, whatever run one begins with. *)
Lemma deadlock_is_wrong : forall P schedule r, deadlocks P schedule = true -> ~ deterministic P r.
Proof.
  intros P schedule r H D. apply after_true in H. destruct H as [s [R H]].
  apply andb_true_iff in H. destruct H as [B N]. destruct (D s R) as [_ [St _]].
  assert (ended P s) as En.
  { apply St. intros t. destruct (Nat.lt_ge_cases t (length (code P))) as [L|L].
    - unfold all_blocked in B. rewrite forallb_forall in B. specialize (B t).
      destruct (step P s t); auto; exfalso; enough (false = true) by discriminate; apply B;
        apply in_seq; lia.
    - unfold step, instr_at. simpl. rewrite nth_overflow by assumption.
      destruct (pc s t); reflexivity. }
  apply negb_true_iff in N. rewrite <- not_true_iff_false in N. apply N.
  apply forallb_forall. exact En.
Qed.

Lemma race_is_wrong : forall P schedule d e r, races P schedule d e = true -> ~ deterministic P r.
Proof.
  intros P schedule d e r H D. apply after_true in H. destruct H as [s [R H]].
  rewrite !andb_true_iff, !Nat.eqb_eq in H. destruct H as [[Hd He] Cf].
  destruct (D s R) as [_ [_ [_ Nr]]]. apply (Nr d e Hd He).
  unfold conflictb in Cf. apply andb_true_iff in Cf. destruct Cf as [Nt Cf].
  apply negb_true_iff, Nat.eqb_neq in Nt. split; [assumption|].
  destruct (touches P d) as [[x v]|]; [|discriminate].
  destruct (touches P e) as [[y w]|]; [|discriminate].
  apply andb_true_iff in Cf. destruct Cf as [Exy Vw]. apply Nat.eqb_eq in Exy. subst y.
  exists x, v, w. auto.
Qed.

Lemma fault_is_wrong : forall P schedule t r, faults P schedule t = true -> ~ deterministic P r.
Proof.
  intros P schedule t r H D. apply after_true in H. destruct H as [s [R H]].
  destruct (D s R) as [Nf _]. apply (Nf t). destruct (step P s t); congruence.
Qed.

(* ------------------------------------------------------------------ a pipeline *)

(* One stage, two turns: mbarrier 0 is full, 1 is empty; two copies of 16 bytes to location 0. *)
Definition copy (issue : event) : list instr := [Follow [issue]; Write 0; Complete 0 16].

Definition consumer : list instr :=
  [WaitParity 0 false; Read 0; Arrive 1 1 0; WaitParity 0 true; Read 0; Arrive 1 1 0].

Definition pipeline : program := Program
  [[WaitParity 1 true; Arrive 0 1 16; WaitParity 1 false; Arrive 0 1 16];
   copy (0, 1); copy (0, 3); consumer] [1; 1].

Definition in_turn : list nat := [0; 0; 1; 1; 1; 3; 3; 3; 0; 0; 2; 2; 2; 3; 3; 3].

Example pipeline_is_certified : certify pipeline in_turn = true.
Proof. vm_compute. reflexivity. Qed.

(* The producer does not wait for the second time: the same run ends, others do not. *)
Definition hasty : program := Program
  [[WaitParity 1 true; Arrive 0 1 16; Arrive 0 1 16]; copy (0, 1); copy (0, 2); consumer] [1; 1].

Definition hasty_in_turn : list nat := [0; 0; 1; 1; 1; 3; 3; 3; 0; 2; 2; 2; 3; 3; 3].

Example hasty_ends : ends hasty hasty_in_turn = true.
Proof. vm_compute. reflexivity. Qed.

Example hasty_is_refused : certify hasty hasty_in_turn = false.
Proof. vm_compute. reflexivity. Qed.

Example hasty_races : races hasty [0; 0; 1; 1; 1; 3; 0; 2] (2, 1) (3, 1) = true.
Proof. vm_compute. reflexivity. Qed.

Example hasty_faults : faults hasty [0; 0] 0 = true.
Proof. vm_compute. reflexivity. Qed.

(* ------------------------------------------------------------------ a credit of no bytes *)

(* Thread 1 has waited for phase 0 before it expects nothing, and thread 2 before it arrives. Only
   that expectation comes after the wait of thread 1; phase 1 can end without it (B). *)
Definition no_bytes : program := Program
  [[Arrive 0 1 0]; [WaitParity 0 false; Expect 0 0]; [WaitParity 0 false; Arrive 0 1 0]] [1].

Example no_bytes_ends : ends no_bytes [0; 1; 1; 2; 2] = true.
Proof. vm_compute. reflexivity. Qed.

Example no_bytes_is_refused : certify no_bytes [0; 1; 1; 2; 2] = false.
Proof. vm_compute. reflexivity. Qed.

Example no_bytes_deadlocks : deadlocks no_bytes [0; 2; 2] = true.
Proof. vm_compute. reflexivity. Qed.

(* The arrival is thread 1's. *)
Definition some_arrival : program := Program
  [[Arrive 0 1 0]; [WaitParity 0 false; Expect 0 0; Arrive 0 1 0]] [1].

Example some_arrival_is_certified : certify some_arrival [0; 1; 1; 1] = true.
Proof. vm_compute. reflexivity. Qed.

(* ------------------------------------------------------------------ a token *)

Definition token : program := Program
  [[Write 0; Arrive 0 1 0; WaitToken 0 1]; [Arrive 0 1 0; WaitToken 0 0; Read 0]] [2].

Example token_is_certified : certify token [0; 0; 1; 0; 1; 1] = true.
Proof. vm_compute. reflexivity. Qed.

(* ------------------------------------------------------------------ a named barrier *)

Definition synced : program := Program
  [[Write 0; Join 0 2; Join 1 2; Await 1 2; Write 0];
   [Join 0 2; Await 0 0; Read 0; Join 1 2]] [].

Example synced_is_certified : certify synced [0; 0; 1; 1; 1; 1; 0; 0; 0] = true.
Proof. vm_compute. reflexivity. Qed.

(* barrier.arrive twice, with no wait in between: both may join the first round (N). *)
Definition twice : program := Program
  [[Join 0 2; Join 0 2]; [Join 0 2; Await 0 0; Join 0 2; Await 0 2]] [].

Example twice_ends : ends twice [0; 1; 1; 0; 1; 1] = true.
Proof. vm_compute. reflexivity. Qed.

Example twice_is_refused : certify twice [0; 1; 1; 0; 1; 1] = false.
Proof. vm_compute. reflexivity. Qed.

Example twice_deadlocks : deadlocks twice [0; 0; 1] = true.
Proof. vm_compute. reflexivity. Qed.

(* ------------------------------------------------------------------ a life *)

Definition life : program := Program
  [[Init 0; Join 0 2; Arrive 0 1 0; Join 1 2; Await 1 3; Inval 0];
   [Join 0 2; Await 0 0; WaitParity 0 false; Join 1 2]] [1].

Example life_is_certified : certify life [0; 0; 1; 1; 0; 1; 1; 0; 0; 0] = true.
Proof. vm_compute. reflexivity. Qed.

(* Thread 0 does not wait before it invalidates. *)
Definition short_life : program := Program
  [[Init 0; Join 0 2; Arrive 0 1 0; Join 1 2; Inval 0];
   [Join 0 2; Await 0 0; WaitParity 0 false; Join 1 2]] [1].

Example short_life_ends : ends short_life [0; 0; 1; 1; 0; 1; 1; 0; 0] = true.
Proof. vm_compute. reflexivity. Qed.

Example short_life_is_refused : certify short_life [0; 0; 1; 1; 0; 1; 1; 0; 0] = false.
Proof. vm_compute. reflexivity. Qed.

Example short_life_faults : faults short_life [0; 0; 1; 1; 0; 0; 0] 1 = true.
Proof. vm_compute. reflexivity. Qed.

(* ------------------------------------------------------------------ each condition is needed *)

(* Which conditions hold of the run of a schedule: that it ends, A, B, B-last, C1, C2, N, I, T, D. *)
Definition conditions (P : program) (schedule : list nat) : list bool :=
  match run P schedule with
  | None => []
  | Some r =>
      let T := tabulate P (seen r) (log schedule) [] in
      [all_ended P r; A_b P r T; B_b P r T; B_last_b P r; C1_b P r T; C2_b P r T; N_b P r T;
       I_b P T; T_b P r; D_b P T]
  end.

(* A: thread 2 may arrive in phase 0 in place of thread 1, and what that writes is read too early. *)
Definition without_A : program := Program
  [[Arrive 0 1 0; WaitParity 0 false; Read 0; Arrive 0 1 0]; [Write 0; Arrive 0 1 0]; [Arrive 0 1 0]]
  [2].
Example needs_A :
  conditions without_A [0; 1; 1; 0; 0; 2; 0] =
    [true; false; true; true; true; true; true; true; true; true] /\
  races without_A [0; 2; 0] (0, 2) (1, 0) = true.
Proof. vm_compute. auto. Qed.

Example needs_B :
  conditions no_bytes [0; 1; 1; 2; 2] =
    [true; true; false; true; true; true; true; true; true; true] /\
  deadlocks no_bytes [0; 2; 2] = true.
Proof. vm_compute. auto. Qed.

(* B-last: phase 0 ends if the arrival comes before bytes that nothing expects. *)
Definition without_B_last : program := Program [[Complete 0 16]; [Arrive 0 1 0]; [WaitParity 0 true]] [1].
Example needs_B_last :
  conditions without_B_last [0; 1; 2] =
    [true; true; true; false; true; true; true; true; true; true] /\
  deadlocks without_B_last [1; 0] = true.
Proof. vm_compute. auto. Qed.

(* C1: the wait for phase 1 passes at once, as if for the phase before phase 0. *)
Definition without_C1 : program := Program
  [[Arrive 0 1 0; Write 0; Arrive 0 1 0]; [WaitParity 0 true; Read 0]] [1].
Example needs_C1 :
  conditions without_C1 [0; 0; 0; 1; 1] =
    [true; true; true; true; false; true; true; true; true; true] /\
  races without_C1 [1; 0] (0, 1) (1, 1) = true.
Proof. vm_compute. auto. Qed.

(* C2: the wait for phase 0 comes when phase 1 is over. *)
Definition without_C2 : program := Program [[Arrive 0 1 0; Arrive 0 1 0]; [WaitParity 0 false]] [1].
Example needs_C2 :
  conditions without_C2 [0; 1; 0] =
    [true; true; true; true; true; false; true; true; true; true] /\
  deadlocks without_C2 [0; 0] = true.
Proof. vm_compute. auto. Qed.

Example needs_N :
  conditions twice [0; 1; 1; 0; 1; 1] =
    [true; true; true; true; true; true; false; true; true; true] /\
  deadlocks twice [0; 0; 1] = true.
Proof. vm_compute. auto. Qed.

(* I: nothing orders the wait behind init. *)
Definition without_I : program := Program [[Init 0; Arrive 0 1 0]; [WaitParity 0 true]] [2].
Example needs_I :
  conditions without_I [0; 1; 0] =
    [true; true; true; true; true; true; true; false; true; true] /\
  faults without_I [] 1 = true.
Proof. vm_compute. auto. Qed.

(* T: both expectations before both completions are more bytes than a count holds. *)
Definition without_T : program := Program
  [[Expect 0 600000; Complete 0 600000; Arrive 0 1 0];
   [Expect 0 600000; Complete 0 600000; Arrive 0 1 0]] [2].
Example needs_T :
  conditions without_T [0; 0; 0; 1; 1; 1] =
    [true; true; true; true; true; true; true; true; false; true] /\
  faults without_T [0] 1 = true.
Proof. vm_compute. auto. Qed.

Definition without_D : program := Program [[Write 0]; [Read 0]] [].
Example needs_D :
  conditions without_D [0; 1] = [true; true; true; true; true; true; true; true; true; false] /\
  races without_D [] (0, 0) (1, 0) = true.
Proof. vm_compute. auto. Qed.

(* ------------------------------------------------------------------ what the proofs rest on *)

(* What the theorem says of the pipeline. *)
Example pipeline_is_right : exists r, run pipeline in_turn = Some r /\
  deterministic pipeline r /\ same_end pipeline r.
Proof. apply certify_right. exact pipeline_is_certified. Qed.

Print Assumptions one_run_stands_for_all.
Print Assumptions certify_right.
Print Assumptions certify_decides.
Print Assumptions pipeline_is_right.
