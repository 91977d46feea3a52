(* The conditions as a program that decides them over the log of a run, and that it is right. *)
Require Import List Arith Bool ZArith Lia.
Require Import Tilesim.Model Tilesim.Proof.
Import ListNotations.
Open Scope Z_scope.

Definition on (b : nat) (c : option (nat * Z * Z)) : bool :=
  match c with Some (b', _, _) => (b' =? b)%nat | None => false end.

Definition edgeb (P : program) (seen : event -> nat) (d e : event) : bool :=
  ((fst d =? fst e) && (S (snd d) =? snd e))%nat ||
  match instr_at P e with
  | Some (WaitParity b _) | Some (WaitToken b _) =>
      on b (credit P d) && (seen e =? S (seen d))%nat
  | Some (Await n _) =>
      match join P d with Some (n', _) => ((n' =? n) && (seen e =? seen d))%nat | None => false end
  | Some (Follow es) => existsb (eqb_event d) es
  | _ => false
  end.

(* By event of the log, its past. *)
Definition table := list (event * list event).

Definition past_of (T : table) (e : event) : list event :=
  match find (fun p => eqb_event (fst p) e) T with Some p => snd p | None => [] end.

Definition add (d : event) (p : list event) : list event :=
  if existsb (eqb_event d) p then p else d :: p.

Fixpoint tabulate (P : program) (seen : event -> nat) (l : list event) (T : table) : table :=
  match l with
  | [] => T
  | e :: rest =>
      let direct := filter (fun d => edgeb P seen d e) (map fst T) in
      let past := fold_right add [] (direct ++ flat_map (past_of T) direct) in
      tabulate P seen rest ((e, past) :: T)
  end.

Definition beforeb (T : table) (d e : event) : bool :=
  match snd e with
  | O => false
  | S i => eqb_event d (fst e, i) || existsb (eqb_event d) (past_of T (fst e, i))
  end.

Section Decide.
Variables (P : program) (r : state) (T : table).
Let E := events P.
Notation bef := (beforeb T).
Notation seen := (seen r).

Definition well_formedb : bool :=
  forallb (fun e => match instr_at P e with
    | Some (WaitToken b j) => (j <? snd e)%nat && on b (credit P (fst e, j))
    | Some (Await n j) => (j <? snd e)%nat &&
        match join P (fst e, j) with Some (n', _) => (n' =? n)%nat | None => false end
    | _ => true end) E &&
  forallb (fun c => 0 <? c)%nat (counts P) &&
  forallb (fun e => forallb (fun e' =>
    match instr_at P e with
    | Some (Init b) => implb (inits P b e') (eqb_event e e')
    | Some (Inval b) => implb (invals P b e') (eqb_event e e')
    | _ => true end) E) E.

Definition A_b := forallb (fun e => forallb (fun e' =>
  match credit P e, credit P e' with
  | Some (b, _, _), Some (b', _, _) =>
      implb ((b =? b') && (seen e' =? S (seen e)))%nat (bef e e')
  | _, _ => true end) E) E.

Definition B_b := forallb (fun e => match credit P e with
  | Some (b, n, d) =>
      implb (bare n d && implb (seen e =? phase r b)%nat (pending r b =? 0))
        (existsb (fun e' => match credit P e' with
           | Some (b', n', _) => (b' =? b)%nat && (0 <? n') && (seen e' =? seen e)%nat && bef e e'
           | None => false end) E)
  | None => true end) E.

Definition B_last_b := forallb (fun e => match credit P e with
  | Some (b, _, _) => implb (pending r b =? 0) (0 <? tx r b) | None => true end) E.

Definition C1_b := forallb (fun w => match wait P w with
  | Some b => forallb (fun e => implb (on b (credit P e) && (seen w =? S (S (seen e)))%nat) (bef e w)) E
  | None => true end) E.

Definition C2_b := forallb (fun w => match wait P w with
  | Some b => implb (seen w <? phase r b)%nat
      (existsb (fun e => on b (credit P e) && (seen e =? seen w)%nat && bef w e) E)
  | None => true end) E.

Definition N_b := forallb (fun e => forallb (fun e' =>
  match join P e, join P e' with
  | Some (n, c), Some (n', c') => implb (n =? n')%nat
      (implb (seen e' =? S (seen e))%nat (bef e e') && implb (seen e' =? seen e)%nat (c =? c'))
  | _, _ => true end) E) E.

Definition I_b := forallb (fun e => forallb (fun o =>
  match instr_at P e, operand P o with
  | Some (Init b), Some b' => implb (b' =? b)%nat (bef e o)
  | Some (Init b), None => implb (invals P b o) (bef e o)
  | Some (Inval b), Some b' => implb (b' =? b)%nat (bef o e)
  | _, _ => true end) E) E.

Definition T_b := forallb (fun e => match credit P e with
  | Some (b, _, _) =>
      (sum (part P r (fun c => Z.max 0 (snd c)) b (seen e)) E <=? most) &&
      (sum (part P r (fun c => Z.max 0 (- snd c)) b (seen e)) E <=? most)
  | None => true end) E.

Definition conflictb d e :=
  negb (fst d =? fst e)%nat &&
  match touches P d, touches P e with
  | Some (x, v), Some (y, w) => (x =? y)%nat && (v || w) | _, _ => false end.

Definition D_b := forallb (fun d => forallb (fun e =>
  implb (conflictb d e) (bef d e || bef e d)) E) E.

Definition certifiedb : bool :=
  forallb (done r) E && A_b && B_b && B_last_b && C1_b && C2_b && N_b && I_b && T_b && D_b.
End Decide.

(* Whether the run of a schedule proves the program. *)
Definition certify (P : program) (schedule : list nat) : bool :=
  match run P schedule with
  | None => false
  | Some r => well_formedb P && certifiedb P r (tabulate P (seen r) (log schedule) [])
  end.

(* ------------------------------------------------------------------ it is right *)

Lemma on_true : forall b c, on b c = true -> exists n d, c = Some (b, n, d).
Proof.
  intros b [[[b' n] d]|]; simpl; intros H; [|discriminate]. apply Nat.eqb_eq in H. subst. eauto.
Qed.

Lemma exists_eqb : forall d l, existsb (eqb_event d) l = true <-> In d l.
Proof.
  intros d l. rewrite existsb_exists. split.
  - intros [e [H E]]. apply eqb_event_true in E. congruence.
  - intros H. exists d. split; [assumption|]. apply eqb_event_refl.
Qed.

Lemma edgeb_edge : forall P seen d e, edgeb P seen d e = true -> edge P seen d e.
Proof.
  intros P seen [u i] [t k]. unfold edgeb. rewrite orb_true_iff, andb_true_iff, !Nat.eqb_eq. simpl.
  intros [[-> <-]|H]; [apply edge_thread|].
  destruct (instr_at P (t, k)) as [w|] eqn:I; [|discriminate].
  assert (forall b, wait_of w = Some b ->
    on b (credit P (u, i)) && (seen (t, k) =? S (seen (u, i)))%nat = true ->
    edge P seen (u, i) (t, k)) as Wt.
  { intros b Hw Hb. apply andb_true_iff in Hb. destruct Hb as [H1 H2].
    apply on_true in H1. destruct H1 as [n [d Cr]]. apply Nat.eqb_eq in H2.
    eapply edge_phase; eauto; [rewrite (wait_at _ _ _ I); assumption | eapply credit_in; eauto]. }
  destruct w; try discriminate.
  - apply (Wt b); auto.
  - apply (Wt b); auto.
  - destruct (join P (u, i)) as [[n' c]|] eqn:J; [|discriminate].
    apply andb_true_iff in H. rewrite !Nat.eqb_eq in H. destruct H as [-> H].
    eapply edge_round; eauto. eapply join_in; eauto.
  - apply exists_eqb in H. eapply edge_follow; eauto.
Qed.

Definition table_ok P seen (T : table) := forall e d, In d (past_of T e) -> hb P seen d e.

Lemma in_add : forall l d, In d (fold_right add [] l) -> In d l.
Proof.
  induction l as [|a l IH]; simpl; intros d H; [assumption|]. unfold add in H at 1.
  destruct (existsb _ _); [auto|]. destruct H; auto.
Qed.

Lemma hb_after : forall P seen a b c, hb P seen a b -> edge P seen b c -> hb P seen a c.
Proof. intros. eapply hb_trans; eauto. Qed.

Lemma tabulate_ok : forall P seen l T, table_ok P seen T -> table_ok P seen (tabulate P seen l T).
Proof.
  induction l as [|e l IH]; simpl; intros T H; [assumption|]. apply IH. intros f d Hd.
  unfold past_of in Hd. simpl in Hd. destruct (eqb_event e f) eqn:Ef.
  - apply eqb_event_true in Ef. subst f. simpl in Hd. apply in_add in Hd.
    apply in_app_iff in Hd. destruct Hd as [Hd|Hd].
    + apply filter_In in Hd. apply hb_edge. apply edgeb_edge. tauto.
    + apply in_flat_map in Hd. destruct Hd as [m [Hm Hd]]. apply filter_In in Hm.
      apply hb_after with (b := m); [apply H; assumption|]. apply edgeb_edge. tauto.
  - apply H. exact Hd.
Qed.

Lemma beforeb_before : forall P seen T d e, table_ok P seen T -> beforeb T d e = true ->
  before P seen d e.
Proof.
  intros P seen T d [t k] H B. unfold beforeb in B. simpl in B. destruct k as [|i]; [discriminate|].
  exists i. split; [reflexivity|]. simpl. apply orb_true_iff in B. destruct B as [B|B].
  - left. apply eqb_event_true. assumption.
  - right. apply H. apply exists_eqb. assumption.
Qed.

Lemma inits_at : forall P b e, inits P b e = true <-> instr_at P e = Some (Init b).
Proof.
  intros P b e. unfold inits. destruct (instr_at P e) as [[]|]; try (split; discriminate).
  rewrite Nat.eqb_eq. split; [intros ->; reflexivity | intros H; inversion H; reflexivity].
Qed.

Lemma invals_at : forall P b e, invals P b e = true <-> instr_at P e = Some (Inval b).
Proof.
  intros P b e. unfold invals. destruct (instr_at P e) as [[]|]; try (split; discriminate).
  rewrite Nat.eqb_eq. split; [intros ->; reflexivity | intros H; inversion H; reflexivity].
Qed.

Lemma forall2 : forall (f : event -> event -> bool) E,
  forallb (fun e => forallb (f e) E) E = true -> forall d e, In d E -> In e E -> f d e = true.
Proof.
  intros f E H d e Hd He. rewrite forallb_forall in H. specialize (H d Hd).
  rewrite forallb_forall in H. auto.
Qed.

Lemma implb_elim : forall a b, implb a b = true -> a = true -> b = true.
Proof. intros [] []; simpl; auto. Qed.

Lemma well_formedb_right : forall P, well_formedb P = true -> well_formed P.
Proof.
  intros P H. apply andb_true_iff in H. destruct H as [H H3].
  apply andb_true_iff in H. destruct H as [H1 H2].
  rewrite forallb_forall in H1, H2. split; [|split; [|split; [|split]]].
  - intros t i b j I. specialize (H1 (t, i)). rewrite I in H1.
    assert (In (t, i) (events P)) as Hi by (apply in_events; congruence).
    specialize (H1 Hi). apply andb_true_iff in H1. destruct H1 as [L O].
    apply Nat.ltb_lt in L. split; [assumption|]. apply on_true. assumption.
  - intros t i n j I. specialize (H1 (t, i)). rewrite I in H1.
    assert (In (t, i) (events P)) as Hi by (apply in_events; congruence).
    specialize (H1 Hi). apply andb_true_iff in H1. destruct H1 as [L O].
    apply Nat.ltb_lt in L. split; [assumption|]. simpl in O.
    destruct (join P (t, j)) as [[n' c]|]; [|discriminate]. apply Nat.eqb_eq in O. subst. eauto.
  - intros b. unfold count.
    destruct (nth_in_or_default b (counts P) 1%nat) as [Hb| ->]; [|lia].
    specialize (H2 _ Hb). apply Nat.ltb_lt in H2. lia.
  - intros b e e' Ie Ie'. pose proof (forall2 _ _ H3 e e' (inits_in _ _ _ Ie) (inits_in _ _ _ Ie')) as H.
    simpl in H. apply inits_at in Ie. rewrite Ie in H. apply eqb_event_true.
    apply (implb_elim _ _ H Ie').
  - intros b e e' Ie Ie'. pose proof (forall2 _ _ H3 e e' (invals_in _ _ _ Ie) (invals_in _ _ _ Ie')) as H.
    simpl in H. apply invals_at in Ie. rewrite Ie in H. apply eqb_event_true.
    apply (implb_elim _ _ H Ie').
Qed.

Lemma certifiedb_right : forall P r T, table_ok P (seen r) T -> certifiedb P r T = true ->
  simply_certified P r.
Proof.
  intros P r T Ok H. unfold certifiedb in H. rewrite !andb_true_iff in H.
  destruct H as [[[[[[[[[H0 HA] HB] HL] H1] H2] HN] HI] HT] HD].
  assert (forall d e, beforeb T d e = true -> before P (seen r) d e) as Bf
    by (intros; eapply beforeb_before; eauto).
  constructor.
  - intros e He. rewrite forallb_forall in H0. auto.
  - intros b e n d e' n' d' He He' Cr Cr' Se. apply Bf.
    pose proof (forall2 _ _ HA e e' He He') as H. simpl in H. rewrite Cr, Cr' in H.
    apply (implb_elim _ _ H). rewrite Se, !Nat.eqb_refl. reflexivity.
  - intros b e n d He Cr Ba Op. unfold B_b in HB. rewrite forallb_forall in HB.
    specialize (HB e He). rewrite Cr in HB.
    assert (existsb (fun e' => match credit P e' with
           | Some (b', n', _) => (b' =? b)%nat && (0 <? n') && (seen r e' =? seen r e)%nat && beforeb T e e'
           | None => false end) (events P) = true) as H.
    { apply (implb_elim _ _ HB). rewrite Ba. simpl.
      destruct (seen r e =? phase r b)%nat eqn:Q; [|reflexivity]. apply Nat.eqb_eq in Q.
      simpl. apply Z.eqb_eq. auto. }
    apply existsb_exists in H. destruct H as [e' [He' H]].
    destruct (credit P e') as [[[b' n'] d']|] eqn:Cr'; [|discriminate].
    rewrite !andb_true_iff, !Nat.eqb_eq, Z.ltb_lt in H. destruct H as [[[-> Pn] Se] B].
    exists e', n', d'. repeat split; auto.
  - intros e b n d He Cr Pz. unfold B_last_b in HL. rewrite forallb_forall in HL.
    specialize (HL e He). rewrite Cr in HL. apply Z.ltb_lt. apply (implb_elim _ _ HL).
    apply Z.eqb_eq. assumption.
  - intros w b e n d Hw He Wx Cr Se. apply Bf. unfold C1_b in H1. rewrite forallb_forall in H1.
    specialize (H1 w Hw). rewrite Wx in H1. rewrite forallb_forall in H1. specialize (H1 e He).
    apply (implb_elim _ _ H1). rewrite Cr, Se. simpl. rewrite !Nat.eqb_refl. reflexivity.
  - intros w b Hw Wx L. unfold C2_b in H2. rewrite forallb_forall in H2. specialize (H2 w Hw).
    rewrite Wx in H2.
    assert (existsb (fun e => on b (credit P e) && (seen r e =? seen r w)%nat && beforeb T w e)
              (events P) = true) as H.
    { apply (implb_elim _ _ H2). apply Nat.ltb_lt. assumption. }
    apply existsb_exists in H. destruct H as [e [He H]].
    rewrite !andb_true_iff, Nat.eqb_eq in H. destruct H as [[O Se] B].
    apply on_true in O. destruct O as [n [d Cr]]. exists e, n, d. repeat split; auto.
  - intros n e c e' c' He He' Je Je'. pose proof (forall2 _ _ HN e e' He He') as H. simpl in H.
    rewrite Je, Je', Nat.eqb_refl in H. simpl in H. apply andb_true_iff in H. destruct H as [Ha Hb].
    split; intros Se.
    + apply Bf. apply (implb_elim _ _ Ha). apply Nat.eqb_eq. assumption.
    + apply Z.eqb_eq. apply (implb_elim _ _ Hb). apply Nat.eqb_eq. assumption.
  - intros b e o He Ho. pose proof (forall2 _ _ HI e o He Ho) as H. simpl in H. split.
    + intros Ie Op. apply inits_at in Ie. rewrite Ie in H. apply Bf.
      destruct (operand P o) as [b'|] eqn:Oo.
      * destruct Op as [Op|Op]; [inversion Op; subst; apply (implb_elim _ _ H); apply Nat.eqb_refl|].
        apply invals_at in Op. unfold operand in Oo. rewrite Op in Oo. discriminate.
      * destruct Op as [Op|Op]; [discriminate|]. apply (implb_elim _ _ H Op).
    + intros Ie Op. apply invals_at in Ie. rewrite Ie, Op in H. apply Bf.
      apply (implb_elim _ _ H). apply Nat.eqb_refl.
  - intros b k.
    assert ((exists e n d, In e (events P) /\ credit P e = Some (b, n, d) /\ seen r e = k) \/
            forall f e, In e (events P) -> part P r f b k e = 0) as [[e [n [d [He [Cr <-]]]]]|Z0].
    { assert (forall l, (exists e n d, In e l /\ credit P e = Some (b, n, d) /\ seen r e = k) \/
                forall f e, In e l -> part P r f b k e = 0) as L.
      { induction l as [|a l IH]; [right; contradiction|].
        destruct IH as [[e [n [d [He H]]]]|IH]; [left; exists e, n, d; simpl; tauto|].
        destruct (credit P a) as [[[b' n] d]|] eqn:Cr.
        - destruct (Nat.eq_dec b' b) as [->|Nb].
          + destruct (Nat.eq_dec (seen r a) k) as [Ek|Nk].
            * left. exists a, n, d. simpl. auto.
            * right. intros f e [->|He]; [|auto]. unfold part. rewrite Cr, Nat.eqb_refl.
              apply Nat.eqb_neq in Nk. rewrite Nk. reflexivity.
          + right. intros f e [->|He]; [|auto]. unfold part. rewrite Cr.
            apply Nat.eqb_neq in Nb. rewrite Nb. reflexivity.
        - right. intros f e [->|He]; [|auto]. unfold part. rewrite Cr. reflexivity. }
      apply L. }
    + unfold T_b in HT. rewrite forallb_forall in HT. specialize (HT e He). rewrite Cr in HT.
      apply andb_true_iff in HT. rewrite !Z.leb_le in HT. assumption.
    + split; rewrite sum_zero; try (unfold most; lia); intros e He; apply Z0; assumption.
  - intros d e Hd He [Nt [x [v [w [Td [Te Vw]]]]]].
    pose proof (forall2 _ _ HD d e Hd He) as H. simpl in H.
    assert (beforeb T d e || beforeb T e d = true) as H'.
    { apply (implb_elim _ _ H). unfold conflictb. rewrite Td, Te, Nat.eqb_refl, Vw.
      apply Nat.eqb_neq in Nt. rewrite Nt. reflexivity. }
    apply orb_true_iff in H'. destruct H'; auto.
Qed.

(* What [certify] accepts is right in all schedules. *)
Theorem certify_right : forall P schedule, certify P schedule = true ->
  exists r, run P schedule = Some r /\ deterministic P r /\ same_end P r.
Proof.
  intros P schedule H. unfold certify in H. destruct (run P schedule) as [r|] eqn:Hr; [|discriminate].
  apply andb_true_iff in H. destruct H as [Hw Hc].
  exists r. split; [reflexivity|].
  assert (well_formed P) as W by (apply well_formedb_right; assumption).
  apply (one_run_stands_for_all P schedule r); auto. apply simply; auto.
  - apply self_reachable; [assumption|exists schedule; assumption].
  - eapply certifiedb_right; [|exact Hc]. apply tabulate_ok. intros e d H. destruct H.
Qed.

(* ------------------------------------------------------------------ it refuses nothing else *)

Lemma edge_edgeb : forall P seen d e, edge P seen d e -> edgeb P seen d e = true.
Proof.
  intros P seen d e H. unfold edgeb.
  inversion H as [t i|b w f n c Hw He Cr Se|n j w f c I He J Se|w es f I He]; subst; simpl.
  - rewrite !Nat.eqb_refl. reflexivity.
  - unfold wait in Hw. destruct (instr_at P e) as [i|]; [|discriminate].
    assert (on b (credit P d) && (seen e =? S (seen d))%nat = true) as O.
    { rewrite Cr, Se. simpl. rewrite !Nat.eqb_refl. reflexivity. }
    destruct i; simpl in Hw; inversion Hw; subst; rewrite O; apply orb_true_r.
  - rewrite I, J, Se, !Nat.eqb_refl. apply orb_true_r.
  - rewrite I. apply orb_true_iff. right. apply exists_eqb. assumption.
Qed.

Lemma add_in : forall l d, In d l -> In d (fold_right add [] l).
Proof.
  induction l as [|a l IH]; simpl; intros d H; [contradiction|]. unfold add at 1.
  destruct (existsb (eqb_event a) (fold_right add [] l)) eqn:X.
  - apply exists_eqb in X. destruct H as [->|H]; auto.
  - destruct H as [->|H]; simpl; auto.
Qed.

(* The table has the events that are done, each with its whole past. *)
Definition table_full P r (T : table) (s : state) :=
  (forall e, done s e = true <-> In e (map fst T)) /\
  (forall d e, done s e = true -> hb P (seen r) d e -> In d (past_of T e)).

Lemma past_of_new : forall T e p f, past_of ((e, p) :: T) f =
  if eqb_event e f then p else past_of T f.
Proof. intros. unfold past_of. simpl. destruct (eqb_event e f); reflexivity. Qed.

Lemma hb_first : forall P seen a c, hb P seen a c ->
  edge P seen a c \/ exists b, hb P seen a b /\ edge P seen b c.
Proof. intros P seen a c H. inversion H; subst; eauto. Qed.

Lemma tabulate_full : forall P r, well_formed P -> self P r -> certified P r ->
  forall schedule s T, good P r s -> self P s -> run_from P s schedule = Some r ->
  table_full P r T s -> table_full P r (tabulate P (seen r) (log_from (pc s) schedule) T) r.
Proof.
  intros P r W R C. induction schedule as [|t rest IH]; simpl; intros s T G S H Full.
  - inversion H; subst. assumption.
  - destruct (step P s t) as [| |s'] eqn:St; try discriminate.
    destruct (step_ok _ _ _ _ St) as [i [v [I [M _]]]].
    pose proof (good_step P r W R C _ _ _ G S St) as G'.
    pose proof (self_step _ _ _ _ W S St) as S'.
    replace (upd (pc s) t (Datatypes.S (pc s t))) with (pc s') by apply M.
    apply (IH s'); auto. destruct Full as [F1 F2]. split.
    + intros e. simpl. rewrite (done_moved _ _ _ _ _ M), orb_true_iff, eqb_event_true, F1.
      split; intros [?|?]; auto.
    + assert (forall d e, done s' e = true -> edge P (seen r) d e -> done s d = true) as Old.
      { intros d e De Ed. pose proof (G_closed _ _ _ G' d e De Ed) as Dd.
        destruct (done_new _ _ _ _ _ M De) as [D0| ->]; [eapply G_closed; eauto|].
        destruct (done_new _ _ _ _ _ M Dd) as [D0| ->]; [assumption|]. exfalso.
        inversion Ed as [u k Q1 Q2|b w e n m Wx He Cr Se Q1 Q2
                        |n j w e c Ix He Je Se Q1 Q2|w es e Ix He Q1 Q2]; subst.
        - lia.
        - lia.
        - unfold join in Je. rewrite Ix in Je. discriminate.
        - unfold step in St. rewrite Ix in St. simpl in St.
          destruct (forallb (done s) es) eqn:Fa; [|discriminate]. rewrite forallb_forall in Fa.
          specialize (Fa _ He). rewrite done_next in Fa. discriminate. }
      intros d e De Hb. rewrite past_of_new. destruct (eqb_event (t, pc s t) e) eqn:Q.
      * apply eqb_event_true in Q. subst e. apply add_in. apply in_app_iff.
        assert (forall b, edge P (seen r) b (t, pc s t) ->
          In b (filter (fun d => edgeb P (seen r) d (t, pc s t)) (map fst T))) as Di.
        { intros b Eb. apply filter_In. split; [|apply edge_edgeb; assumption].
          apply F1. eapply Old; eauto. }
        destruct (hb_first _ _ _ _ Hb) as [Ed|[b [Hd Eb]]]; [left; auto|].
        right. apply in_flat_map. exists b. split; [auto|]. apply F2; [|assumption].
        eapply Old; eauto.
      * apply F2; [|assumption]. destruct (done_new _ _ _ _ _ M De) as [D0| ->]; [assumption|].
        rewrite eqb_event_refl in Q. discriminate.
Qed.

Lemma before_beforeb : forall P r T d e, table_full P r T r -> (snd e <= pc r (fst e))%nat ->
  before P (seen r) d e -> beforeb T d e = true.
Proof.
  intros P r T d [t k] [_ F] L [i [E H]]. simpl in *. subst k. unfold beforeb. simpl.
  apply orb_true_iff. destruct H as [->|H]; [left; apply eqb_event_refl|].
  right. apply exists_eqb. apply F; [|assumption]. unfold done. simpl. apply Nat.ltb_lt. lia.
Qed.

Lemma forall2_intro : forall (f : event -> event -> bool) E,
  (forall d e, In d E -> In e E -> f d e = true) -> forallb (fun e => forallb (f e) E) E = true.
Proof.
  intros f E H. apply forallb_forall. intros d Hd. apply forallb_forall. intros e He. auto.
Qed.

Lemma implb_intro : forall a b, (a = true -> b = true) -> implb a b = true.
Proof. intros [] b H; simpl; auto. Qed.

Lemma certified_certifiedb : forall P r T, table_full P r T r -> simply_certified P r ->
  certifiedb P r T = true.
Proof.
  intros P r T Full C. destruct C as [H0 HA HB HL H1 H2 HN HI HT HD].
  assert (forall d e, In e (events P) -> before P (seen r) d e -> beforeb T d e = true) as Bf.
  { intros d e He. apply before_beforeb; [assumption|]. specialize (H0 e He). unfold done in H0.
    apply Nat.ltb_lt in H0. lia. }
  unfold certifiedb. rewrite !andb_true_iff. repeat split.
  - apply forallb_forall. assumption.
  - apply forall2_intro. intros e e' He He'.
    destruct (credit P e) as [[[b n] d]|] eqn:Cr; [|reflexivity].
    destruct (credit P e') as [[[b' n'] d']|] eqn:Cr'; [|reflexivity].
    apply implb_intro. rewrite andb_true_iff, !Nat.eqb_eq. intros [-> Se].
    apply Bf; [assumption|]. eapply HA; eauto.
  - apply forallb_forall. intros e He. destruct (credit P e) as [[[b n] d]|] eqn:Cr; [|reflexivity].
    apply implb_intro. rewrite andb_true_iff. intros [Ba Op].
    destruct (HB b e n d He Cr Ba) as [e' [n' [d' [He' [Cr' [Pn [Se B]]]]]]].
    { intros Q. pose proof (implb_elim _ _ Op) as Op'. rewrite Nat.eqb_eq, Z.eqb_eq in Op'. auto. }
    apply existsb_exists. exists e'. split; [assumption|]. rewrite Cr', Nat.eqb_refl.
    apply Z.ltb_lt in Pn. apply Nat.eqb_eq in Se. rewrite Pn, Se. simpl. auto.
  - apply forallb_forall. intros e He. destruct (credit P e) as [[[b n] d]|] eqn:Cr; [|reflexivity].
    apply implb_intro. rewrite Z.eqb_eq, Z.ltb_lt. eauto.
  - apply forallb_forall. intros w Hw. destruct (wait P w) as [b|] eqn:Wx; [|reflexivity].
    apply forallb_forall. intros e He. apply implb_intro. rewrite andb_true_iff, Nat.eqb_eq.
    intros [O Se]. apply on_true in O. destruct O as [n [d Cr]]. apply Bf; [assumption|]. eauto.
  - apply forallb_forall. intros w Hw. destruct (wait P w) as [b|] eqn:Wx; [|reflexivity].
    apply implb_intro. rewrite Nat.ltb_lt. intros L.
    destruct (H2 w b Hw Wx L) as [e [n [d [He [Cr [Se B]]]]]].
    apply existsb_exists. exists e. split; [assumption|]. apply Nat.eqb_eq in Se.
    rewrite Cr, Se. simpl. rewrite Nat.eqb_refl. simpl. auto.
  - apply forall2_intro. intros e e' He He'.
    destruct (join P e) as [[n c]|] eqn:Je; [|reflexivity].
    destruct (join P e') as [[n' c']|] eqn:Je'; [|reflexivity].
    apply implb_intro. rewrite Nat.eqb_eq. intros <-.
    destruct (HN n e c e' c' He He' Je Je') as [Ha Hb].
    apply andb_true_iff. split; apply implb_intro; rewrite Nat.eqb_eq; intros Se; auto.
    apply Z.eqb_eq. auto.
  - apply forall2_intro. intros e o He Ho.
    destruct (instr_at P e) as [i|] eqn:Ie; [|reflexivity].
    destruct i; try (destruct (operand P o); reflexivity).
    + apply inits_at in Ie. destruct (operand P o) as [b'|] eqn:Oo; apply implb_intro.
      * rewrite Nat.eqb_eq. intros ->. apply Bf; [assumption|].
        apply (proj1 (HI b e o He Ho) Ie). left. assumption.
      * intros Iv. apply Bf; [assumption|]. apply (proj1 (HI b e o He Ho) Ie). right. assumption.
    + apply invals_at in Ie. destruct (operand P o) as [b'|] eqn:Oo; [|reflexivity].
      apply implb_intro. rewrite Nat.eqb_eq. intros ->. apply Bf; [assumption|].
      apply (proj2 (HI b e o He Ho) Ie). assumption.
  - apply forallb_forall. intros e He. destruct (credit P e) as [[[b n] d]|] eqn:Cr; [|reflexivity].
    destruct (HT b (seen r e)). apply andb_true_iff. rewrite !Z.leb_le. auto.
  - apply forall2_intro. intros d e Hd He. apply implb_intro. intros Cf.
    unfold conflictb in Cf. apply andb_true_iff in Cf. destruct Cf as [Nt Cf].
    apply negb_true_iff, Nat.eqb_neq in Nt.
    destruct (touches P d) as [[x v]|] eqn:Td; [|discriminate].
    destruct (touches P e) as [[y w]|] eqn:Te; [|discriminate].
    apply andb_true_iff in Cf. destruct Cf as [Exy Vw]. apply Nat.eqb_eq in Exy. subst y.
    apply orb_true_iff. destruct (HD d e Hd He); [|left|right]; auto.
    split; [assumption|]. exists x, v, w. auto.
Qed.

Lemma well_formed_well_formedb : forall P, well_formed P -> well_formedb P = true.
Proof.
  intros P [Wt [Wa [Wc [W1 W2]]]]. unfold well_formedb. rewrite !andb_true_iff. split; [split|].
  - apply forallb_forall. intros [t i] _. destruct (instr_at P (t, i)) as [[]|] eqn:I; auto.
    + destruct (Wt _ _ _ _ I) as [L [n [d Cr]]]. simpl. rewrite Cr. simpl.
      apply Nat.ltb_lt in L. rewrite L, Nat.eqb_refl. reflexivity.
    + destruct (Wa _ _ _ _ I) as [L [c Jr]]. simpl. rewrite Jr.
      apply Nat.ltb_lt in L. rewrite L, Nat.eqb_refl. reflexivity.
  - apply forallb_forall. intros c Hc. apply In_nth with (d := 1%nat) in Hc.
    destruct Hc as [b [_ <-]]. specialize (Wc b). unfold count in Wc. apply Nat.ltb_lt. lia.
  - apply forall2_intro. intros e e' _ _. destruct (instr_at P e) as [[]|] eqn:Ie; auto.
    + apply inits_at in Ie. apply implb_intro. intros Ie'. apply eqb_event_true. eauto.
    + apply invals_at in Ie. apply implb_intro. intros Ie'. apply eqb_event_true. eauto.
Qed.

(* [certify] decides whether the log of a run satisfies the conditions, B in its simple form. *)
Theorem certify_decides : forall P schedule, certify P schedule = true <->
  well_formed P /\ exists r, run P schedule = Some r /\ simply_certified P r.
Proof.
  intros P schedule. unfold certify. destruct (run P schedule) as [r|] eqn:Hr.
  - split.
    + intros H. apply andb_true_iff in H. destruct H as [Hw Hc].
      split; [apply well_formedb_right; assumption|]. exists r. split; [reflexivity|].
      eapply certifiedb_right; [|exact Hc]. apply tabulate_ok. intros e d H. destruct H.
    + intros [Hw [r' [E C]]]. inversion E; subst r'. apply andb_true_iff.
      split; [apply well_formed_well_formedb; assumption|].
      assert (self P r) as R by (apply self_reachable; [assumption|exists schedule; assumption]).
      apply certified_certifiedb; [|assumption].
      apply (tabulate_full P r Hw R (simply P r Hw R C) schedule (start P) []); auto.
      * apply good_start.
      * apply self_start. assumption.
      * split; intros; rewrite not_done_start in *; simpl; [|discriminate].
        split; [discriminate|contradiction].
  - split; [discriminate|]. intros [_ [r [E _]]]. discriminate.
Qed.

(* ------------------------------------------------------------------ without a given schedule *)

Definition moves (P : program) (s : state) (t : nat) : bool :=
  match step P s t with Ok _ => true | _ => false end.

(* The schedule in which always the first thread moves that can. *)
Fixpoint first_schedule (fuel : nat) (P : program) (s : state) : list nat :=
  match fuel with
  | O => []
  | S more =>
      match find (moves P s) (seq 0 (length (code P))) with
      | None => []
      | Some t => match step P s t with Ok s' => t :: first_schedule more P s' | _ => [] end
      end
  end.

Definition judge (P : program) : bool :=
  certify P (first_schedule (length (events P)) P (start P)).
