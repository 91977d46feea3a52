(* The proof of Model.theorem. *)
Require Import List Arith Bool ZArith Lia.
Require Import Tilesim.Model.
Import ListNotations.
Open Scope Z_scope.

(* ------------------------------------------------------------------ sums *)

Lemma sum_ext : forall l f g, (forall e, In e l -> f e = g e) -> sum f l = sum g l.
Proof.
  induction l as [|a l IH]; simpl; intros f g H; [reflexivity|].
  rewrite (H a), (IH f g); auto.
Qed.

Lemma sum_le : forall l f g, (forall e, In e l -> f e <= g e) -> sum f l <= sum g l.
Proof.
  induction l as [|a l IH]; simpl; intros f g H; [lia|].
  assert (f a <= g a) by auto. assert (sum f l <= sum g l) by auto. lia.
Qed.

Lemma sum_lt : forall l f g x, (forall e, In e l -> f e <= g e) -> In x l -> f x < g x ->
  sum f l < sum g l.
Proof.
  induction l as [|a l IH]; simpl; intros f g x H Hx Hlt; [contradiction|].
  destruct Hx as [->|Hx].
  - assert (sum f l <= sum g l) by (apply sum_le; auto). lia.
  - assert (f a <= g a) by auto. assert (sum f l < sum g l) by (eapply IH; eauto). lia.
Qed.

Lemma sum_zero : forall l f, (forall e, In e l -> f e = 0) -> sum f l = 0.
Proof.
  induction l as [|a l IH]; simpl; intros f H; [reflexivity|].
  rewrite (H a), (IH f); auto.
Qed.

Lemma sum_pos : forall l f x, (forall e, In e l -> 0 <= f e) -> In x l -> 0 < f x -> 0 < sum f l.
Proof.
  intros l f x H Hx Hp. rewrite <- (sum_zero l (fun _ => 0)) at 1; [|reflexivity].
  apply sum_lt with (x := x); auto.
Qed.

Lemma sum_opp : forall l f, sum (fun e => - f e) l = - sum f l.
Proof. induction l as [|a l IH]; simpl; intros; [reflexivity|]. rewrite IH. lia. Qed.

Lemma sum_nonzero : forall l f, sum f l <> 0 -> exists e, In e l /\ f e <> 0.
Proof.
  induction l as [|a l IH]; simpl; intros f H; [lia|].
  destruct (Z.eq_dec (f a) 0) as [E|E].
  - destruct (IH f) as [e [He Hf]]; [lia|]. eauto.
  - eauto.
Qed.

Lemma sum_one : forall l f g x, NoDup l -> In x l ->
  (forall e, In e l -> e <> x -> g e = f e) -> sum g l = sum f l + (g x - f x).
Proof.
  induction l as [|a l IH]; simpl; intros f g x Hn Hx H; [contradiction|].
  inversion Hn as [|? ? Hnot Hnd]; subst.
  destruct Hx as [->|Hx].
  - rewrite (sum_ext l g f); [lia|]. intros e He. apply H; auto. intros ->. contradiction.
  - rewrite (IH f g x); auto. rewrite (H a); auto; [lia|]. intros ->. contradiction.
Qed.

(* ------------------------------------------------------------------ events *)

Lemma eqb_event_true : forall a b, eqb_event a b = true <-> a = b.
Proof.
  intros [a i] [b j]. unfold eqb_event. simpl. rewrite andb_true_iff, !Nat.eqb_eq.
  split; [intros [-> ->]; reflexivity | intros H; inversion H; auto].
Qed.

Lemma eqb_event_refl : forall a, eqb_event a a = true.
Proof. intros. apply eqb_event_true. reflexivity. Qed.

Lemma eqb_event_false : forall a b, a <> b -> eqb_event a b = false.
Proof.
  intros a b H. destruct (eqb_event a b) eqn:E; [|reflexivity].
  apply eqb_event_true in E. contradiction.
Qed.

Lemma in_events : forall P e, In e (events P) <-> instr_at P e <> None.
Proof.
  intros P [t i]. unfold events, instr_at. simpl. rewrite in_flat_map. split.
  - intros [t' [_ H]]. apply in_map_iff in H. destruct H as [i' [E H]]. inversion E; subst.
    apply in_seq in H. apply nth_error_Some. lia.
  - intros H. apply nth_error_Some in H. exists t. split.
    + apply in_seq. destruct (Nat.lt_ge_cases t (length (code P))); [lia|].
      rewrite nth_overflow in H by assumption. simpl in H. lia.
    + apply in_map_iff. exists i. split; [reflexivity|]. apply in_seq. lia.
Qed.

Lemma NoDup_apart : forall (l m : list event), NoDup l -> NoDup m ->
  (forall e, In e l -> ~ In e m) -> NoDup (l ++ m).
Proof.
  induction l as [|a l IH]; simpl; intros m Hl Hm H; [assumption|].
  inversion Hl; subst. constructor.
  - rewrite in_app_iff. intros [|]; [contradiction|]. eapply H; eauto.
  - apply IH; auto.
Qed.

Lemma NoDup_pairs : forall (ts : list nat) (f : nat -> list nat), NoDup ts ->
  (forall t, NoDup (f t)) -> NoDup (flat_map (fun t => map (pair t) (f t)) ts).
Proof.
  induction ts as [|t ts IH]; simpl; intros f Hn Hf; [constructor|].
  inversion Hn; subst. apply NoDup_apart; auto.
  - specialize (Hf t). induction (f t) as [|i l IHl]; simpl; [constructor|].
    inversion Hf; subst. constructor; auto.
    rewrite in_map_iff. intros [y [E Hy]]. inversion E; subst. contradiction.
  - intros e He Hf'. apply in_map_iff in He. destruct He as [i [<- _]].
    apply in_flat_map in Hf'. destruct Hf' as [t' [Ht H4]]. apply in_map_iff in H4.
    destruct H4 as [i' [E _]]. inversion E; subst. contradiction.
Qed.

Lemma NoDup_events : forall P, NoDup (events P).
Proof. intros. apply NoDup_pairs; [apply seq_NoDup|]. intros. apply seq_NoDup. Qed.

Lemma credit_in : forall P e c, credit P e = Some c -> In e (events P).
Proof. intros P e c H. apply in_events. unfold credit in H. intros E. rewrite E in H. discriminate. Qed.

Lemma join_in : forall P e c, join P e = Some c -> In e (events P).
Proof. intros P e c H. apply in_events. unfold join in H. intros E. rewrite E in H. discriminate. Qed.

Lemma wait_in : forall P e c, wait P e = Some c -> In e (events P).
Proof. intros P e c H. apply in_events. unfold wait in H. intros E. rewrite E in H. discriminate. Qed.

Lemma credit_nat : forall P e b n d, credit P e = Some (b, n, d) -> 0 <= n.
Proof.
  intros P e b n d. unfold credit. destruct (instr_at P e) as [[]|]; simpl; intros H; inversion H; lia.
Qed.

(* ------------------------------------------------------------------ one step *)

Definition total (P : program) (s : state) (g : nat -> event -> Z) : Z :=
  sum (fun e => if done s e then g (seen s e) e else 0) (events P).

Definition g_arr P b k (v : nat) e : Z :=
  match credit P e with
  | Some (b', n, _) => if (b' =? b)%nat && (v =? k)%nat then n else 0 | None => 0 end.
Definition g_tx P b k (v : nat) e : Z :=
  match credit P e with
  | Some (b', _, d) => if (b' =? b)%nat && (v =? k)%nat then d else 0 | None => 0 end.
Definition g_join P n j (v : nat) e : Z :=
  match join P e with
  | Some (n', _) => if (n' =? n)%nat && (v =? j)%nat then 1 else 0 | None => 0 end.

(* s' is s after thread t has executed its next event, which has seen v. *)
Definition moved (s s' : state) (t v : nat) : Prop :=
  pc s' = upd (pc s) t (S (pc s t)) /\
  seen s' = fun e => if eqb_event e (t, pc s t) then v else seen s e.

Lemma done_next : forall s t, done s (t, pc s t) = false.
Proof. intros. unfold done. simpl. apply Nat.ltb_irrefl. Qed.

Lemma done_moved : forall s s' t v e, moved s s' t v ->
  done s' e = done s e || eqb_event e (t, pc s t).
Proof.
  intros s s' t v [u i] [Hpc _]. unfold done, eqb_event. rewrite Hpc. unfold upd. simpl.
  destruct (u =? t)%nat eqn:E.
  - apply Nat.eqb_eq in E. subst. simpl.
    destruct (i =? pc s t)%nat eqn:E2.
    + apply Nat.eqb_eq in E2. subst. rewrite orb_true_r. apply Nat.ltb_lt. lia.
    + apply Nat.eqb_neq in E2. rewrite orb_false_r.
      destruct (i <? pc s t)%nat eqn:E3; [apply Nat.ltb_lt in E3 | apply Nat.ltb_ge in E3];
        [apply Nat.ltb_lt | apply Nat.ltb_ge]; lia.
  - simpl. rewrite orb_false_r. reflexivity.
Qed.

Lemma done_keeps : forall s s' t v e, moved s s' t v -> done s e = true -> done s' e = true.
Proof. intros s s' t v e H D. rewrite (done_moved s s' t v) by assumption. rewrite D. reflexivity. Qed.

Lemma done_new : forall s s' t v e, moved s s' t v -> done s' e = true ->
  done s e = true \/ e = (t, pc s t).
Proof.
  intros s s' t v e H D. rewrite (done_moved s s' t v) in D by assumption.
  apply orb_true_iff in D. destruct D as [D|D]; auto. apply eqb_event_true in D. auto.
Qed.

Lemma seen_keeps : forall s s' t v e, moved s s' t v -> done s e = true -> seen s' e = seen s e.
Proof.
  intros s s' t v e [_ ->] D. rewrite eqb_event_false; [reflexivity|].
  intros ->. rewrite done_next in D. discriminate.
Qed.

Lemma seen_new : forall s s' t v, moved s s' t v -> seen s' (t, pc s t) = v.
Proof. intros s s' t v [_ ->]. rewrite eqb_event_refl. reflexivity. Qed.

Lemma total_moved : forall P s s' t v g, moved s s' t v -> instr_at P (t, pc s t) <> None ->
  total P s' g = total P s g + g v (t, pc s t).
Proof.
  intros P s s' t v g M H. unfold total.
  erewrite (sum_one (events P) (fun e => if done s e then g (seen s e) e else 0) _ (t, pc s t)).
  - rewrite done_next. rewrite (done_moved s s' t v) by assumption.
    rewrite eqb_event_refl, orb_true_r. rewrite (seen_new s s' t v) by assumption. lia.
  - apply NoDup_events.
  - apply in_events. assumption.
  - intros e _ Hne. simpl. rewrite (done_moved s s' t v) by assumption.
    rewrite (eqb_event_false e) by assumption. rewrite orb_false_r.
    destruct (done s e) eqn:D; [|reflexivity]. rewrite (seen_keeps s s' t v) by assumption. reflexivity.
Qed.

Definition mbarrier_moved P s s' b i v : Prop :=
  (exists n d, credit_of i = Some (b, n, d) /\ v = phase s b /\ 0 <= pending s b - n /\
     ((pending s b - n = 0 /\ tx s b + d = 0 /\
       phase s' b = S (phase s b) /\ pending s' b = count P b /\ tx s' b = 0) \/
      (~ (pending s b - n = 0 /\ tx s b + d = 0) /\
       phase s' b = phase s b /\ pending s' b = pending s b - n /\ tx s' b = tx s b + d))) \/
  ((forall n d, credit_of i <> Some (b, n, d)) /\
   phase s' b = phase s b /\ pending s' b = pending s b /\ tx s' b = tx s b).

Definition named_moved s s' n i v : Prop :=
  (exists c, join_of i = Some (n, c) /\ v = round s n /\ 1 <= c /\
     (0 < joined s n -> size s n = c) /\
     ((joined s n + 1 = c /\ round s' n = S (round s n) /\ joined s' n = 0 /\ size s' n = c) \/
      (joined s n + 1 <> c /\ round s' n = round s n /\ joined s' n = joined s n + 1 /\
       size s' n = c))) \/
  ((forall c, join_of i <> Some (n, c)) /\
   round s' n = round s n /\ joined s' n = joined s n /\ size s' n = size s n).

Definition passed s t i v : Prop :=
  match i with
  | WaitParity b p => v = phase s b /\ odd v <> p
  | WaitToken b j => v = phase s b /\ odd v <> odd (seen s (t, j))
  | Await n j => v = seen s (t, j) /\ (v < round s n)%nat
  | Follow es => v = 0%nat /\ forall e, In e es -> done s e = true
  | Inval b => v = 0%nat /\ live s b = true
  | Init _ | Read _ | Write _ => v = 0%nat
  | _ => True
  end.

(* What becomes of the lives of mbarriers. *)
Definition lives s s' i : Prop := forall b,
  live s' b = match i with
              | Init b' => if (b =? b')%nat then true else live s b
              | Inval b' => if (b =? b')%nat then false else live s b
              | _ => live s b
              end.

Lemma upd_same : forall A (f : nat -> A) k v, upd f k v k = v.
Proof. intros. unfold upd. rewrite Nat.eqb_refl. reflexivity. Qed.

Lemma upd_other : forall A (f : nat -> A) k v j, j <> k -> upd f k v j = f j.
Proof. intros. unfold upd. apply Nat.eqb_neq in H. rewrite H. reflexivity. Qed.

Lemma eqb_bool_false : forall a b, Bool.eqb a b = false -> a <> b.
Proof. intros a b H ->. rewrite Bool.eqb_reflx in H. discriminate. Qed.

Lemma credit_ok : forall P s t b n d s' i, do_credit P s t b n d = Ok s' ->
  credit_of i = Some (b, n, d) -> join_of i = None ->
  exists v, moved s s' t v /\ (forall b', mbarrier_moved P s s' b' i v) /\
    (forall m, named_moved s s' m i v) /\ forall b', live s' b' = live s b'.
Proof.
  intros P s t b n d s' i H Hc Hj. unfold do_credit in H.
  destruct ((pending s b - n <? 0) || (most <? Z.abs (tx s b + d)) ||
    (bare n d && ((pending s b - n =? 0) && (tx s b + d =? 0)))) eqn:F; [discriminate|].
  apply orb_false_iff in F. destruct F as [F _]. apply orb_false_iff in F. destruct F as [F _].
  apply Z.ltb_ge in F.
  exists (phase s b).
  destruct ((pending s b - n =? 0) && (tx s b + d =? 0)) eqn:O; inversion H; subst; clear H.
  - apply andb_true_iff in O. destruct O as [O1 O2]. apply Z.eqb_eq in O1. apply Z.eqb_eq in O2.
    split; [split; reflexivity|]. split.
    + intros b'. destruct (Nat.eq_dec b' b) as [->|N].
      * left. exists n, d. repeat split; auto. left. simpl. rewrite !upd_same. auto.
      * right. simpl. rewrite !upd_other by assumption. repeat split; auto.
        intros n' d' E. rewrite Hc in E. inversion E. congruence.
    + split; [|reflexivity].
      intros m. right. simpl. repeat split; auto. intros c E. rewrite Hj in E. discriminate.
  - split; [split; reflexivity|]. split.
    + intros b'. destruct (Nat.eq_dec b' b) as [->|N].
      * left. exists n, d. repeat split; auto. right. simpl. rewrite !upd_same. repeat split; auto.
        intros [O1 O2]. apply Z.eqb_eq in O1. apply Z.eqb_eq in O2. rewrite O1, O2 in O. discriminate.
      * right. simpl. rewrite !upd_other by assumption. repeat split; auto.
        intros n' d' E. rewrite Hc in E. inversion E. congruence.
    + split; [|reflexivity].
      intros m. right. simpl. repeat split; auto. intros c E. rewrite Hj in E. discriminate.
Qed.

Lemma join_ok : forall P s t n c s', do_join s t n (Z.of_nat c) = Ok s' ->
  exists v, moved s s' t v /\ (forall b', mbarrier_moved P s s' b' (Join n c) v) /\
    (forall m, named_moved s s' m (Join n c) v) /\ forall b', live s' b' = live s b'.
Proof.
  intros P s t n c s' H. unfold do_join in H.
  destruct ((Z.of_nat c <=? 0) || ((0 <? joined s n) && negb (size s n =? Z.of_nat c))) eqn:F;
    [discriminate|].
  apply orb_false_iff in F. destruct F as [F1 F2]. apply Z.leb_gt in F1.
  assert (0 < joined s n -> size s n = Z.of_nat c) as F3.
  { intros J. apply Z.ltb_lt in J. rewrite J in F2. simpl in F2. apply negb_false_iff in F2.
    apply Z.eqb_eq in F2. assumption. }
  exists (round s n).
  destruct (joined s n + 1 =? Z.of_nat c) eqn:O; inversion H; subst; clear H;
    [apply Z.eqb_eq in O | apply Z.eqb_neq in O];
    (split; [split; reflexivity|]; split;
     [intros b'; right; simpl; repeat split; auto; intros; discriminate|];
     split; [|reflexivity]; intros m; destruct (Nat.eq_dec m n) as [->|N];
     [left; exists (Z.of_nat c); simpl; rewrite !upd_same; repeat split; auto; lia
     |right; simpl; rewrite !upd_other by assumption; repeat split; auto;
      intros c' E; inversion E; congruence]).
Qed.

Lemma step_ok : forall P s t s', step P s t = Ok s' ->
  exists i v, instr_at P (t, pc s t) = Some i /\ moved s s' t v /\
    (forall b, mbarrier_moved P s s' b i v) /\ (forall n, named_moved s s' n i v) /\
    passed s t i v /\ lives s s' i.
Proof.
  intros P s t s' H. unfold step in H. destruct (instr_at P (t, pc s t)) as [i|] eqn:I; [|discriminate].
  destruct (alive s i); [|discriminate].
  assert (forall v x, pc s' = pc (advance s t v) -> seen s' = seen (advance s t v) ->
    s' = State (pc s') (seen s') (phase s) (pending s) (tx s) (round s) (joined s) (size s) x ->
    credit_of i = None -> join_of i = None ->
    passed s t i v -> lives s s' i -> exists j w, Some i = Some j /\ moved s s' t w /\
      (forall b, mbarrier_moved P s s' b j w) /\ (forall n, named_moved s s' n j w) /\
      passed s t j w /\ lives s s' j) as Plain.
  { intros v x Ep Es E Hc Hj Hp Hl. exists i, v. split; [reflexivity|].
    split; [split; assumption|]. split; [|split; [|split; assumption]].
    - intros b. right. rewrite Hc, E. repeat split; auto. intros; discriminate.
    - intros n. right. rewrite Hj, E. repeat split; auto. intros; discriminate. }
  assert (forall v, Ok (advance s t v) = Ok s' -> credit_of i = None -> join_of i = None ->
    (forall b, i <> Init b) -> (forall b, i <> Inval b) ->
    passed s t i v -> exists j w, Some i = Some j /\ moved s s' t w /\
      (forall b, mbarrier_moved P s s' b j w) /\ (forall n, named_moved s s' n j w) /\
      passed s t j w /\ lives s s' j) as Simple.
  { intros v E Hc Hj N1 N2 Hp. inversion E; subst s'. apply (Plain v (live s)); auto.
    intros b. destruct i; simpl; auto; exfalso; [eapply N1 | eapply N2]; reflexivity. }
  destruct i as [b|b|b n d|b d|b d|b p|b j|n c|n j|es|x|x]; simpl in H.
  - destruct (live s b) eqn:L; inversion H; subst s'. apply (Plain 0%nat (upd (live s) b true)); simpl; auto.
    intros b'. simpl. unfold upd. reflexivity.
  - destruct (live s b) eqn:L; inversion H; subst s'. apply (Plain 0%nat (upd (live s) b false)); simpl; auto.
    intros b'. simpl. unfold upd. reflexivity.
  - destruct (credit_ok P s t b _ _ s' (Arrive b n d) H eq_refl eq_refl) as [v [? [? [? ?]]]].
    exists (Arrive b n d), v. simpl. unfold lives. auto 8.
  - destruct (credit_ok P s t b _ _ s' (Expect b d) H eq_refl eq_refl) as [v [? [? [? ?]]]].
    exists (Expect b d), v. simpl. unfold lives. auto 8.
  - destruct (credit_ok P s t b _ _ s' (Complete b d) H eq_refl eq_refl) as [v [? [? [? ?]]]].
    exists (Complete b d), v. simpl. unfold lives. auto 8.
  - destruct (Bool.eqb (odd (phase s b)) p) eqn:O; [discriminate|].
    apply eqb_bool_false in O. eapply Simple; eauto; simpl; auto; discriminate.
  - destruct (Bool.eqb (odd (phase s b)) (odd (seen s (t, j)))) eqn:O; [discriminate|].
    apply eqb_bool_false in O. eapply Simple; eauto; simpl; auto; discriminate.
  - destruct (join_ok P s t n c s' H) as [v [? [? [? ?]]]].
    exists (Join n c), v. simpl. unfold lives. auto 8.
  - destruct (seen s (t, j) <? round s n)%nat eqn:O; [|discriminate].
    apply Nat.ltb_lt in O. eapply Simple; eauto; simpl; auto; discriminate.
  - destruct (forallb (done s) es) eqn:O; [|discriminate].
    rewrite forallb_forall in O. eapply Simple; eauto; simpl; auto; discriminate.
  - eapply Simple; eauto; try reflexivity; discriminate.
  - eapply Simple; eauto; try reflexivity; discriminate.
Qed.

(* ------------------------------------------------------------------ what holds in every run *)

Record self_mbarrier P s b : Prop := {
  B_le : forall e n d, done s e = true -> credit P e = Some (b, n, d) -> (seen s e <= phase s b)%nat;
  B_old : forall k, (k < phase s b)%nat ->
    total P s (g_arr P b k) = count P b /\ total P s (g_tx P b k) = 0;
  B_arr : total P s (g_arr P b (phase s b)) = count P b - pending s b;
  B_tx : total P s (g_tx P b (phase s b)) = tx s b;
  B_open : 0 <= pending s b /\ ~ (pending s b = 0 /\ tx s b = 0);
  B_wait : forall w, done s w = true -> wait P w = Some b -> (seen s w <= phase s b)%nat }.

Record self_named P s n : Prop := {
  N_pos : forall e c, done s e = true -> join P e = Some (n, c) -> 1 <= c;
  N_le : forall e c, done s e = true -> join P e = Some (n, c) -> (seen s e <= round s n)%nat;
  N_old : forall j, (j < round s n)%nat -> exists c, 1 <= c /\ total P s (g_join P n j) = c /\
    forall e c', done s e = true -> join P e = Some (n, c') -> seen s e = j -> c' = c;
  N_open : total P s (g_join P n (round s n)) = joined s n /\ 0 <= joined s n /\
    (joined s n = 0 \/ joined s n < size s n);
  N_size : forall e c, done s e = true -> join P e = Some (n, c) -> seen s e = round s n ->
    c = size s n }.

Record self_thread P s : Prop := {
  T_valid : forall e, done s e = true -> In e (events P);
  T_passed : forall t i w, done s (t, i) = true -> instr_at P (t, i) = Some w ->
    match w with
    | WaitParity _ p => odd (seen s (t, i)) <> p
    | WaitToken _ j => odd (seen s (t, i)) <> odd (seen s (t, j))
    | Await n j => seen s (t, i) = seen s (t, j) /\ (seen s (t, i) < round s n)%nat
    | Follow es => seen s (t, i) = 0%nat /\ forall e, In e es -> done s e = true
    | Init _ | Inval _ | Read _ | Write _ => seen s (t, i) = 0%nat
    | _ => True
    end }.

Definition begun P s b := live (start P) b = true \/ exists e, done s e = true /\ inits P b e = true.

Definition self_live P s := forall b,
  (live s b = true <-> begun P s b /\ forall e, done s e = true -> invals P b e = false) /\
  (forall e, done s e = true -> invals P b e = true -> begun P s b).

Record self P s : Prop := {
  S_mbarrier : forall b, self_mbarrier P s b;
  S_named : forall n, self_named P s n;
  S_thread : self_thread P s;
  S_live : self_live P s }.

Lemma credit_at : forall P e i, instr_at P e = Some i -> credit P e = credit_of i.
Proof. intros P e i H. unfold credit. rewrite H. reflexivity. Qed.
Lemma join_at : forall P e i, instr_at P e = Some i -> join P e = join_of i.
Proof. intros P e i H. unfold join. rewrite H. reflexivity. Qed.
Lemma wait_at : forall P e i, instr_at P e = Some i -> wait P e = wait_of i.
Proof. intros P e i H. unfold wait. rewrite H. reflexivity. Qed.

Lemma g_arr_same : forall P b k e n d, credit P e = Some (b, n, d) -> g_arr P b k k e = n.
Proof. intros. unfold g_arr. rewrite H, !Nat.eqb_refl. reflexivity. Qed.
Lemma g_tx_same : forall P b k e n d, credit P e = Some (b, n, d) -> g_tx P b k k e = d.
Proof. intros. unfold g_tx. rewrite H, !Nat.eqb_refl. reflexivity. Qed.
Lemma g_join_same : forall P b k e c, join P e = Some (b, c) -> g_join P b k k e = 1.
Proof. intros. unfold g_join. rewrite H, !Nat.eqb_refl. reflexivity. Qed.

Lemma g_arr_none : forall P b k v e, (forall n d, credit P e = Some (b, n, d) -> v <> k) ->
  g_arr P b k v e = 0.
Proof.
  intros. unfold g_arr. destruct (credit P e) as [[[b' n] d]|] eqn:C; [|reflexivity].
  destruct (b' =? b)%nat eqn:E1; [|reflexivity]. apply Nat.eqb_eq in E1. subst.
  destruct (v =? k)%nat eqn:E2; [|reflexivity]. apply Nat.eqb_eq in E2. exfalso. eapply H; eauto.
Qed.
Lemma g_tx_none : forall P b k v e, (forall n d, credit P e = Some (b, n, d) -> v <> k) ->
  g_tx P b k v e = 0.
Proof.
  intros. unfold g_tx. destruct (credit P e) as [[[b' n] d]|] eqn:C; [|reflexivity].
  destruct (b' =? b)%nat eqn:E1; [|reflexivity]. apply Nat.eqb_eq in E1. subst.
  destruct (v =? k)%nat eqn:E2; [|reflexivity]. apply Nat.eqb_eq in E2. exfalso. eapply H; eauto.
Qed.
Lemma g_join_none : forall P b k v e, (forall c, join P e = Some (b, c) -> v <> k) ->
  g_join P b k v e = 0.
Proof.
  intros. unfold g_join. destruct (join P e) as [[b' n]|] eqn:C; [|reflexivity].
  destruct (b' =? b)%nat eqn:E1; [|reflexivity]. apply Nat.eqb_eq in E1. subst.
  destruct (v =? k)%nat eqn:E2; [|reflexivity]. apply Nat.eqb_eq in E2. exfalso. eapply H; eauto.
Qed.

Lemma no_future_arr : forall P s b k, self_mbarrier P s b -> (phase s b < k)%nat ->
  total P s (g_arr P b k) = 0.
Proof.
  intros P s b k S L. apply sum_zero. intros e _. destruct (done s e) eqn:D; [|reflexivity].
  apply g_arr_none. intros n d C. pose proof (B_le _ _ _ S _ _ _ D C). lia.
Qed.
Lemma no_future_tx : forall P s b k, self_mbarrier P s b -> (phase s b < k)%nat ->
  total P s (g_tx P b k) = 0.
Proof.
  intros P s b k S L. apply sum_zero. intros e _. destruct (done s e) eqn:D; [|reflexivity].
  apply g_tx_none. intros n d C. pose proof (B_le _ _ _ S _ _ _ D C). lia.
Qed.
Lemma no_future_join : forall P s b k, self_named P s b -> (round s b < k)%nat ->
  total P s (g_join P b k) = 0.
Proof.
  intros P s b k S L. apply sum_zero. intros e _. destruct (done s e) eqn:D; [|reflexivity].
  apply g_join_none. intros c C. pose proof (N_le _ _ _ S _ _ D C). lia.
Qed.

Lemma self_mbarrier_step : forall P s s' t i v b,
  well_formed P -> instr_at P (t, pc s t) = Some i -> moved s s' t v ->
  mbarrier_moved P s s' b i v -> passed s t i v -> self_mbarrier P s b -> self_mbarrier P s' b.
Proof.
  intros P s s' t i v b [_ [_ [Wc _]]] I M Mb Ps S.
  assert (instr_at P (t, pc s t) <> None) as In0 by (rewrite I; discriminate).
  pose proof (credit_at _ _ _ I) as Ci. pose proof (wait_at _ _ _ I) as Wi.
  assert (forall w, done s' w = true -> wait P w = Some b -> (seen s' w <= phase s b)%nat) as Wt.
  { intros w D W. destruct (done_new _ _ _ _ _ M D) as [D0| ->].
    - rewrite (seen_keeps _ _ _ _ _ M D0). eapply B_wait; eauto.
    - rewrite (seen_new _ _ _ _ M). rewrite Wi in W.
      destruct i; simpl in W; inversion W; subst; simpl in Ps; destruct Ps; subst; lia. }
  destruct Mb as [[n [d [C [-> [Pn Cs]]]]] | [C [Eph [Ep Et]]]].
  - assert (credit P (t, pc s t) = Some (b, n, d)) as Cx by congruence.
    assert (forall e m q, done s' e = true -> credit P e = Some (b, m, q) ->
              (seen s' e <= phase s b)%nat) as Le.
    { intros e m q D Ce. destruct (done_new _ _ _ _ _ M D) as [D0| ->].
      - rewrite (seen_keeps _ _ _ _ _ M D0). eapply B_le; eauto.
      - rewrite (seen_new _ _ _ _ M). lia. }
    assert (forall k, (k < phase s b)%nat ->
      total P s' (g_arr P b k) = count P b /\ total P s' (g_tx P b k) = 0) as Old.
    { intros k L. destruct (B_old _ _ _ S k L) as [O1 O2].
      rewrite !(total_moved _ _ _ _ _ _ M In0), O1, O2.
      rewrite g_arr_none by (intros; lia). rewrite g_tx_none by (intros; lia). lia. }
    assert (total P s' (g_arr P b (phase s b)) = count P b - (pending s b - n)) as Arr.
    { rewrite (total_moved _ _ _ _ _ _ M In0), (B_arr _ _ _ S).
      rewrite (g_arr_same _ _ _ _ _ _ Cx). lia. }
    assert (total P s' (g_tx P b (phase s b)) = tx s b + d) as Tx.
    { rewrite (total_moved _ _ _ _ _ _ M In0), (B_tx _ _ _ S).
      rewrite (g_tx_same _ _ _ _ _ _ Cx). lia. }
    destruct Cs as [[Z1 [Z2 [Eph [Ep Et]]]] | [NZ [Eph [Ep Et]]]].
    + constructor; rewrite ?Eph, ?Ep, ?Et.
      * intros e m q D Ce. pose proof (Le e m q D Ce). lia.
      * intros k L. destruct (Nat.eq_dec k (phase s b)) as [->|N]; [|apply Old; lia].
        rewrite Arr, Tx. lia.
      * rewrite (total_moved _ _ _ _ _ _ M In0).
        rewrite (no_future_arr _ _ _ _ S) by lia. rewrite g_arr_none by (intros; lia). lia.
      * rewrite (total_moved _ _ _ _ _ _ M In0).
        rewrite (no_future_tx _ _ _ _ S) by lia. rewrite g_tx_none by (intros; lia). lia.
      * specialize (Wc b). lia.
      * intros w D W. specialize (Wt w D W). lia.
    + constructor; rewrite ?Eph, ?Ep, ?Et; auto.
  - assert (forall k, g_arr P b k v (t, pc s t) = 0) as Ga.
    { intros k. apply g_arr_none. intros n d E. exfalso. apply (C n d). congruence. }
    assert (forall k, g_tx P b k v (t, pc s t) = 0) as Gt.
    { intros k. apply g_tx_none. intros n d E. exfalso. apply (C n d). congruence. }
    destruct S as [S1 S2 S3 S4 S5 S6].
    constructor; rewrite ?Eph, ?Ep, ?Et; auto.
    + intros e m q D Ce. destruct (done_new _ _ _ _ _ M D) as [D0| ->].
      * rewrite (seen_keeps _ _ _ _ _ M D0). eauto.
      * exfalso. apply (C m q). congruence.
    + intros k L. rewrite !(total_moved _ _ _ _ _ _ M In0), Ga, Gt. destruct (S2 k L). lia.
    + rewrite (total_moved _ _ _ _ _ _ M In0), Ga. lia.
    + rewrite (total_moved _ _ _ _ _ _ M In0), Gt. lia.
Qed.

Lemma self_named_step : forall P s s' t i v n,
  instr_at P (t, pc s t) = Some i -> moved s s' t v ->
  named_moved s s' n i v -> self_named P s n -> self_named P s' n.
Proof.
  intros P s s' t i v n I M Mb S.
  assert (instr_at P (t, pc s t) <> None) as In0 by (rewrite I; discriminate).
  pose proof (join_at _ _ _ I) as Ji.
  destruct Mb as [[c [C [-> [Pc [Sz Cs]]]]] | [C [Er [Ej Es]]]].
  - assert (join P (t, pc s t) = Some (n, c)) as Jx by congruence.
    assert (forall e c', done s' e = true -> join P e = Some (n, c') ->
       1 <= c' /\ (seen s' e <= round s n)%nat) as Le.
    { intros e c' D Je. destruct (done_new _ _ _ _ _ M D) as [D0| ->].
      - rewrite (seen_keeps _ _ _ _ _ M D0). split; [eapply N_pos | eapply N_le]; eauto.
      - rewrite (seen_new _ _ _ _ M). split; [congruence|lia]. }
    assert (forall j, (j < round s n)%nat -> exists c, 1 <= c /\ total P s' (g_join P n j) = c /\
       forall e c', done s' e = true -> join P e = Some (n, c') -> seen s' e = j -> c' = c) as Old.
    { intros j L. destruct (N_old _ _ _ S j L) as [c0 [H1 [H2 H3]]]. exists c0. split; [assumption|].
      split.
      - rewrite (total_moved _ _ _ _ _ _ M In0), H2. rewrite g_join_none by (intros; lia). lia.
      - intros e c' D Je Hs. destruct (done_new _ _ _ _ _ M D) as [D0| ->].
        + rewrite (seen_keeps _ _ _ _ _ M D0) in Hs. eauto.
        + rewrite (seen_new _ _ _ _ M) in Hs. lia. }
    destruct (N_open _ _ _ S) as [O1 [O2 O3]].
    assert (total P s' (g_join P n (round s n)) = joined s n + 1) as Tot.
    { rewrite (total_moved _ _ _ _ _ _ M In0), O1. rewrite (g_join_same _ _ _ _ _ Jx). lia. }
    assert (forall e c', done s' e = true -> join P e = Some (n, c') -> seen s' e = round s n ->
       c' = c) as Same.
    { intros e c' D Je Hs. destruct (done_new _ _ _ _ _ M D) as [D0| ->]; [|congruence].
      rewrite (seen_keeps _ _ _ _ _ M D0) in Hs.
      assert (0 < joined s n) as J0.
      { rewrite <- O1. unfold total.
        apply sum_pos with (x := e).
        - intros f _. destruct (done s f); [|lia]. unfold g_join.
          destruct (join P f) as [[? ?]|]; [|lia]. destruct (_ && _); lia.
        - eapply join_in; eauto.
        - rewrite D0, Hs. rewrite (g_join_same _ _ _ _ _ Je). lia. }
      rewrite <- (Sz J0). eapply N_size; eauto. }
    destruct Cs as [[Z1 [Er [Ej Es]]] | [NZ [Er [Ej Es]]]].
    + constructor; rewrite ?Er, ?Ej, ?Es.
      * intros e c' D Je. apply (Le e c' D Je).
      * intros e c' D Je. pose proof (Le e c' D Je). lia.
      * intros j L. destruct (Nat.eq_dec j (round s n)) as [->|N]; [|apply Old; lia].
        exists c. split; [assumption|]. split; [lia|]. assumption.
      * rewrite (total_moved _ _ _ _ _ _ M In0).
        rewrite (no_future_join _ _ _ _ S) by lia. rewrite g_join_none by (intros; lia). lia.
      * intros e c' D Je Hs. pose proof (Le e c' D Je). lia.
    + constructor; rewrite ?Er, ?Ej, ?Es; auto.
      * intros e c' D Je. apply (Le e c' D Je).
      * intros e c' D Je. apply (Le e c' D Je).
      * split; [assumption|]. split; [lia|]. right.
        destruct (Z.eq_dec (joined s n) 0) as [E0|E0]; [lia|].
        assert (size s n = c) by (apply Sz; lia). lia.
  - assert (forall k, g_join P n k v (t, pc s t) = 0) as Gj.
    { intros k. apply g_join_none. intros c E. exfalso. apply (C c). congruence. }
    assert (forall e c, done s' e = true -> join P e = Some (n, c) ->
      done s e = true /\ seen s' e = seen s e) as Old.
    { intros e c D Je. destruct (done_new _ _ _ _ _ M D) as [D0| ->].
      - split; [assumption|]. apply (seen_keeps _ _ _ _ _ M D0).
      - exfalso. apply (C c). congruence. }
    destruct S as [S1 S2 S3 S4 S5].
    constructor; rewrite ?Er, ?Ej, ?Es.
    + intros e c D Je. destruct (Old e c D Je). eauto.
    + intros e c D Je. destruct (Old e c D Je) as [D0 ->]. eauto.
    + intros j L. destruct (S3 j L) as [c [H1 [H2 H3]]]. exists c. split; [assumption|]. split.
      * rewrite (total_moved _ _ _ _ _ _ M In0), Gj. lia.
      * intros e c' D Je. destruct (Old e c' D Je) as [D0 ->]. eauto.
    + rewrite (total_moved _ _ _ _ _ _ M In0), Gj. rewrite Z.add_0_r. assumption.
    + intros e c D Je. destruct (Old e c D Je) as [D0 ->]. eauto.
Qed.

Lemma round_grows : forall s s' n i v, named_moved s s' n i v -> (round s n <= round s' n)%nat.
Proof. intros s s' n i v [[c [_ [_ [_ [_ [[_ [-> _]]|[_ [-> _]]]]]]]]|[_ [-> _]]]; lia. Qed.

Lemma self_thread_step : forall P s s' t i v,
  well_formed P -> instr_at P (t, pc s t) = Some i -> moved s s' t v ->
  (forall n, named_moved s s' n i v) -> passed s t i v -> self_thread P s -> self_thread P s'.
Proof.
  intros P s s' t i v [Wt [Wa _]] I M Mn Ps S. constructor.
  - intros e D. destruct (done_new _ _ _ _ _ M D) as [D0| ->]; [eapply T_valid; eauto|].
    apply in_events. rewrite I. discriminate.
  - assert (forall u k, (k < pc s u)%nat -> seen s' (u, k) = seen s (u, k)) as Ks.
    { intros u k L. apply (seen_keeps _ _ _ _ _ M). unfold done. simpl. apply Nat.ltb_lt. assumption. }
    intros u j w D Iw. destruct (done_new _ _ _ _ _ M D) as [D0|E].
    + pose proof (T_passed _ _ S u j w D0 Iw) as Old. rewrite (seen_keeps _ _ _ _ _ M D0).
      unfold done in D0. simpl in D0. apply Nat.ltb_lt in D0.
      destruct w; auto.
      * destruct (Wt _ _ _ _ Iw) as [L _]. rewrite Ks by lia. assumption.
      * destruct (Wa _ _ _ _ Iw) as [L _]. rewrite Ks by lia. destruct Old. split; [assumption|].
        pose proof (round_grows _ _ _ _ _ (Mn n)). lia.
      * destruct Old as [O1 O2]. split; [assumption|]. intros e He.
        eapply done_keeps; eauto.
    + inversion E; subst u j. rewrite I in Iw. inversion Iw; subst w.
      rewrite (seen_new _ _ _ _ M). destruct i; simpl in Ps; auto.
      * tauto.
      * tauto.
      * destruct (Wt _ _ _ _ I) as [L _]. rewrite Ks by lia. tauto.
      * destruct (Wa _ _ _ _ I) as [L _]. rewrite Ks by lia. destruct Ps. split; [assumption|].
        pose proof (round_grows _ _ _ _ _ (Mn n)). lia.
      * destruct Ps as [P1 P2]. split; [assumption|]. intros e He. eapply done_keeps; eauto.
Qed.

Lemma start_dead : forall P b e, inits P b e = true -> live (start P) b = false.
Proof.
  intros P b e H. simpl. apply negb_false_iff. apply existsb_exists. exists e. split; [|assumption].
  apply in_events. unfold inits in H. intros N. rewrite N in H. discriminate.
Qed.

Lemma self_live_step : forall P s s' t i v,
  well_formed P -> instr_at P (t, pc s t) = Some i -> moved s s' t v -> lives s s' i ->
  passed s t i v -> self_live P s -> self_live P s'.
Proof.
  intros P s s' t i v [_ [_ [_ [W1 W2]]]] I M Lv Ps S b. rewrite (Lv b). destruct (S b) as [Sl Sv].
  assert (inits P b (t, pc s t) = match i with Init b' => (b' =? b)%nat | _ => false end) as Ei
    by (unfold inits; rewrite I; reflexivity).
  assert (invals P b (t, pc s t) = match i with Inval b' => (b' =? b)%nat | _ => false end) as Ev
    by (unfold invals; rewrite I; reflexivity).
  assert (begun P s b -> begun P s' b) as Bg.
  { intros [H|[e [D H]]]; [left; assumption|right; exists e]. split; [|assumption].
    eapply done_keeps; eauto. }
  assert (done s' (t, pc s t) = true) as Dx
    by (rewrite (done_moved _ _ _ _ _ M), eqb_event_refl; apply orb_true_r).
  assert (inits P b (t, pc s t) = false -> begun P s' b -> begun P s b) as Bb.
  { intros N [H|[e [D H]]]; [left; assumption|right; exists e]. split; [|assumption].
    destruct (done_new _ _ _ _ _ M D) as [?| ->]; [assumption|congruence]. }
  assert (invals P b (t, pc s t) = false ->
    (forall e, done s e = true -> invals P b e = false) <->
    (forall e, done s' e = true -> invals P b e = false)) as O2.
  { intros N. split; intros H e D.
    - destruct (done_new _ _ _ _ _ M D) as [?| ->]; auto.
    - apply H. eapply done_keeps; eauto. }
  assert (inits P b (t, pc s t) = false -> invals P b (t, pc s t) = false ->
    (live s b = true <-> begun P s' b /\ forall e, done s' e = true -> invals P b e = false) /\
    (forall e, done s' e = true -> invals P b e = true -> begun P s' b)) as Same.
  { intros N1 N2. split.
    - rewrite Sl, (O2 N2). split; intros [H1 H2]; auto.
    - intros e D H. destruct (done_new _ _ _ _ _ M D) as [?| ->]; [eauto|congruence]. }
  destruct i as [b'|b'| | | | | | | | | | ]; try (apply Same; assumption).
  - destruct (b =? b')%nat eqn:Q; [|apply Same; [rewrite Ei, Nat.eqb_sym; assumption|assumption]].
    apply Nat.eqb_eq in Q. subst b'. rewrite Nat.eqb_refl in Ei.
    assert (begun P s' b) as B by (right; exists (t, pc s t); auto).
    split; [|auto]. split; [|reflexivity]. intros _. split; [assumption|]. apply (O2 Ev).
    intros e D. destruct (invals P b e) eqn:Ie; [|reflexivity]. exfalso.
    destruct (Sv e D Ie) as [H|[e' [D' H']]].
    + rewrite (start_dead _ _ _ Ei) in H. discriminate.
    + rewrite (W1 b e' _ H' Ei), done_next in D'. discriminate.
  - destruct (b =? b')%nat eqn:Q; [|apply Same; [assumption|rewrite Ev, Nat.eqb_sym; assumption]].
    apply Nat.eqb_eq in Q. subst b'. rewrite Nat.eqb_refl in Ev. destruct Ps as [_ L].
    apply Sl in L. destruct L as [B _]. split; [|auto].
    split; [discriminate|]. intros [_ H]. rewrite (H _ Dx) in Ev. discriminate.
Qed.

Lemma self_step : forall P s s' t, well_formed P -> self P s -> step P s t = Ok s' -> self P s'.
Proof.
  intros P s s' t W [S1 S2 S3 S4] H. destruct (step_ok _ _ _ _ H) as [i [v [I [M [Mb [Mn [Ps Lv]]]]]]].
  constructor.
  - intros b. eapply self_mbarrier_step; eauto.
  - intros n. eapply self_named_step; eauto.
  - eapply self_thread_step; eauto.
  - eapply self_live_step; eauto.
Qed.

Lemma not_done_start : forall P e, done (start P) e = false.
Proof. intros. unfold done. simpl. apply Nat.ltb_ge. lia. Qed.

Lemma total_start : forall P g, total P (start P) g = 0.
Proof. intros. apply sum_zero. intros e _. rewrite not_done_start. reflexivity. Qed.

Lemma self_start : forall P, well_formed P -> self P (start P).
Proof.
  intros P [_ [_ [Wc _]]].
  constructor; [intros b|intros n| |
    intros b; split; [split; [intros H; split; [left; assumption|]|intros [[H|[e [D _]]] _]]|];
      try assumption; try (intros e D); rewrite not_done_start in D; discriminate];
    constructor; rewrite ?total_start; simpl;
    try (intros e D0; intros; rewrite not_done_start in D0; discriminate);
    try (intros; rewrite not_done_start in *; discriminate); try lia.
  - specialize (Wc b). lia.
Qed.

Lemma self_run : forall P schedule s s', well_formed P -> self P s ->
  run_from P s schedule = Some s' -> self P s'.
Proof.
  induction schedule as [|t rest IH]; simpl; intros s s' W S H; [congruence|].
  destruct (step P s t) eqn:St; try discriminate. exact (IH s0 s' W (self_step _ _ _ _ W S St) H).
Qed.

Lemma self_reachable : forall P s, well_formed P -> reachable P s -> self P s.
Proof. intros P s W [schedule H]. eapply self_run; eauto. apply self_start. assumption. Qed.

(* ------------------------------------------------------------------ other schedules *)

Record good P (r s : state) : Prop := {
  G_agree : forall e, done s e = true -> seen s e = seen r e;
  G_closed : forall d e, done s e = true -> edge P (seen r) d e -> done s d = true }.

Section Certified.
Variables (P : program) (r : state).
Hypothesis W : well_formed P.
Hypothesis R : self P r.
Hypothesis C : certified P r.

Notation E := (events P).
Notation bef := (before P (seen r)).

Lemma hb_done : forall s d e, good P r s -> hb P (seen r) d e -> done s e = true -> done s d = true.
Proof.
  intros s d e G H. induction H; intros D.
  - eapply G_closed; eauto.
  - apply IHhb. eapply G_closed; eauto.
Qed.

(* What is before an event that is done, or that is its thread's next one, is done. *)
Lemma before_done : forall s d e, good P r s -> (snd e <= pc s (fst e))%nat -> bef d e ->
  done s d = true.
Proof.
  intros s d [t k] G L [i [E1 H]]. simpl in *. subst.
  assert (done s (t, i) = true) as D by (unfold done; simpl; apply Nat.ltb_lt; lia).
  destruct H as [->|H]; [assumption|]. eapply hb_done; eauto.
Qed.

Lemma done_ready : forall s e, done s e = true -> (snd e <= pc s (fst e))%nat.
Proof. intros s e D. unfold done in D. apply Nat.ltb_lt in D. lia. Qed.

Lemma done_r : forall e, In e E -> done r e = true.
Proof. intros e H. apply (C_ended _ _ C). assumption. Qed.

Lemma total_r : forall g, total P r g = sum (fun e => g (seen r e) e) E.
Proof. intros g. apply sum_ext. intros e H. rewrite done_r by assumption. reflexivity. Qed.

Lemma total_s : forall s g, good P r s ->
  total P s g = sum (fun e => if done s e then g (seen r e) e else 0) E.
Proof.
  intros s g G. apply sum_ext. intros e H. destruct (done s e) eqn:D; [|reflexivity].
  rewrite (G_agree _ _ _ G e D). reflexivity.
Qed.

Definition all_done s b k := forall e n d, credit P e = Some (b, n, d) -> seen r e = k ->
  done s e = true.
Definition all_joined s n j := forall e c, join P e = Some (n, c) -> seen r e = j ->
  done s e = true.

Lemma g_arr_pos : forall b k v e, 0 <= g_arr P b k v e.
Proof.
  intros. unfold g_arr. destruct (credit P e) as [[[b' n] d]|] eqn:Cr; [|lia].
  pose proof (credit_nat _ _ _ _ _ Cr). destruct (_ && _); lia.
Qed.

Lemma arrivals_r : forall b k, (k <= phase r b)%nat ->
  total P r (g_arr P b k) <= count P b /\
  (total P r (g_arr P b k) = count P b -> k = phase r b -> pending r b = 0).
Proof.
  intros b k L. pose proof (S_mbarrier _ _ R b) as B.
  destruct (Nat.eq_dec k (phase r b)) as [->|N].
  - rewrite (B_arr _ _ _ B). destruct (B_open _ _ _ B). lia.
  - destruct (B_old _ _ _ B k) as [-> _]; lia.
Qed.

Lemma some_credit : forall b k, total P r (g_arr P b k) <> 0 ->
  exists e n d, credit P e = Some (b, n, d) /\ seen r e = k /\ n <> 0.
Proof.
  intros b k H. apply sum_nonzero in H. destruct H as [e [He H]]. rewrite done_r in H by assumption.
  unfold g_arr in H. destruct (credit P e) as [[[b' n] d]|] eqn:Cr; [|congruence].
  destruct (b' =? b)%nat eqn:E1; simpl in H; [|congruence].
  destruct (seen r e =? k)%nat eqn:E2; [|congruence].
  apply Nat.eqb_eq in E1. apply Nat.eqb_eq in E2. subst. eauto 6.
Qed.


(* Phases that are over in s are over in the run, and their credits are done (B). *)
Lemma phases_over : forall s b k, good P r s -> self P s -> (k < phase s b)%nat ->
  (k < phase r b)%nat /\ all_done s b k.
Proof.
  intros s b k G S L. destruct (B_old _ _ _ (S_mbarrier _ _ S b) k L) as [O1 O2].
  rewrite total_s in O1, O2 by assumption.
  apply (C_B _ _ C b k (done s)).
  - intros d e He De Bf. apply (before_done s d e G (done_ready _ _ De) Bf).
  - split; assumption.
Qed.

(* The open phase of s, if it ends in the run, lacks a credit. *)
Lemma phase_open : forall s b, good P r s -> self P s -> (phase s b < phase r b)%nat ->
  all_done s b (phase s b) -> False.
Proof.
  intros s b G S L A. pose proof (S_mbarrier _ _ S b) as Bs. pose proof (S_mbarrier _ _ R b) as Br.
  destruct (B_old _ _ _ Br _ L) as [O1 O2]. rewrite total_r in O1, O2.
  destruct (B_open _ _ _ Bs) as [_ N]. apply N.
  pose proof (B_arr _ _ _ Bs) as Ta. pose proof (B_tx _ _ _ Bs) as Tt.
  rewrite total_s in Ta, Tt by assumption. split.
  - rewrite (sum_ext _ _ (fun e => g_arr P b (phase s b) (seen r e) e)) in Ta; [lia|].
    intros e _. destruct (done s e) eqn:De; [reflexivity|]. symmetry. apply g_arr_none.
    intros n d Cr Sk. rewrite (A e n d) in De; auto. discriminate.
  - rewrite (sum_ext _ _ (fun e => g_tx P b (phase s b) (seen r e) e)) in Tt; [lia|].
    intros e _. destruct (done s e) eqn:De; [reflexivity|]. symmetry. apply g_tx_none.
    intros n d Cr Sk. rewrite (A e n d) in De; auto. discriminate.
Qed.

(* If all credits of a phase are done, so are those of all phases before (A). *)
Lemma chain : forall s b k, good P r s -> (k < phase r b)%nat -> all_done s b k ->
  forall j, (j <= k)%nat -> all_done s b j.
Proof.
  intros s b k G. induction k as [|k IH]; intros L A j Lj.
  - replace j with 0%nat by lia. assumption.
  - destruct (Nat.eq_dec j (S k)) as [->|N]; [assumption|]. apply IH; [lia| |lia].
    pose proof W as [_ [_ [Wc _]]]. specialize (Wc b).
    destruct (some_credit b (S k)) as [e' [n' [d' [Cr' [Sk' _]]]]].
    { destruct (B_old _ _ _ (S_mbarrier _ _ R b) _ L) as [-> _]. lia. }
    intros e n d Cr Sk. assert (done s e' = true) as De' by (eapply A; eauto).
    apply (before_done s e e' G (done_ready _ _ De')).
    apply (C_A _ _ C b e n d e' n' d'); auto; try (eapply credit_in; eauto). congruence.
Qed.

Lemma all_joins : forall j n, total P r (g_join P n j) <> 0 ->
  exists e c, join P e = Some (n, c) /\ seen r e = j.
Proof.
  intros j n H. apply sum_nonzero in H. destruct H as [e [He H]]. rewrite done_r in H by assumption.
  unfold g_join in H. destruct (join P e) as [[b' c]|] eqn:Jr; [|congruence].
  destruct (b' =? n)%nat eqn:E1; simpl in H; [|congruence].
  destruct (seen r e =? j)%nat eqn:E2; [|congruence].
  apply Nat.eqb_eq in E1. apply Nat.eqb_eq in E2. subst. eauto.
Qed.

Lemma some_join : forall s n j, total P s (g_join P n j) <> 0 ->
  exists e c, done s e = true /\ join P e = Some (n, c) /\ seen s e = j.
Proof.
  intros s n j H. apply sum_nonzero in H. destruct H as [e [He H]].
  destruct (done s e) eqn:D; [|congruence].
  unfold g_join in H. destruct (join P e) as [[b' c]|] eqn:Jr; [|congruence].
  destruct (b' =? n)%nat eqn:E1; simpl in H; [|congruence].
  destruct (seen s e =? j)%nat eqn:E2; [|congruence].
  apply Nat.eqb_eq in E1. apply Nat.eqb_eq in E2. subst. eauto.
Qed.

Lemma g_join_pos : forall n j v e, 0 <= g_join P n j v e.
Proof. intros. unfold g_join. destruct (join P e) as [[? ?]|]; [|lia]. destruct (_ && _); lia. Qed.

Lemma rounds_over : forall s n j, good P r s -> self P s -> (j < round s n)%nat ->
  (j < round r n)%nat /\ all_joined s n j.
Proof.
  intros s n j G S L. pose proof (S_named _ _ S n) as Ns. pose proof (S_named _ _ R n) as Nr.
  destruct (N_old _ _ _ Ns j L) as [c [Pc [T1 Sc]]].
  destruct (some_join s n j) as [e0 [c0 [D0 [J0 S0]]]]; [lia|].
  assert (c0 = c) by eauto. subst c0.
  assert (seen r e0 = j) as Sr by (rewrite <- (G_agree _ _ _ G) by assumption; assumption).
  assert (done r e0 = true) as Dr by (apply done_r; eapply join_in; eauto).
  assert (sum (fun e => if done s e then g_join P n j (seen r e) e else 0) E = c) as T2.
  { rewrite <- total_s by assumption. assumption. }
  assert (c <= total P r (g_join P n j)) as Le.
  { rewrite total_r, <- T2. apply sum_le. intros e _. pose proof (g_join_pos n j (seen r e) e).
    destruct (done s e); lia. }
  pose proof (N_le _ _ _ Nr _ _ Dr J0) as Lr. rewrite Sr in Lr.
  assert (j < round r n)%nat as Lt.
  { destruct (Nat.eq_dec j (round r n)) as [->|N]; [|lia]. exfalso.
    destruct (N_open _ _ _ Nr) as [O1 [O2 O3]].
    pose proof (N_size _ _ _ Nr _ _ Dr J0 Sr). lia. }
  split; [assumption|].
  destruct (N_old _ _ _ Nr j Lt) as [c' [_ [T3 Sc']]].
  assert (c = c') by (eapply Sc'; eauto). subst c'.
  intros e d Je Se. destruct (done s e) eqn:De; [reflexivity|]. exfalso.
  assert (c < total P r (g_join P n j)); [|lia].
  rewrite total_r, <- T2. apply sum_lt with (x := e).
  - intros f _. pose proof (g_join_pos n j (seen r f) f). destruct (done s f); lia.
  - eapply join_in; eauto.
  - rewrite De, Se. rewrite (g_join_same _ _ _ _ _ Je). lia.
Qed.

Lemma round_open : forall s n, good P r s -> self P s -> (round s n < round r n)%nat ->
  all_joined s n (round s n) -> False.
Proof.
  intros s n G S L A. pose proof (S_named _ _ S n) as Ns. pose proof (S_named _ _ R n) as Nr.
  destruct (N_old _ _ _ Nr _ L) as [c [Pc [T1 Sc]]].
  destruct (N_open _ _ _ Ns) as [O1 [O2 O3]].
  assert (total P s (g_join P n (round s n)) = c) as T2.
  { rewrite <- T1, total_s, total_r by assumption. apply sum_ext. intros e _.
    destruct (done s e) eqn:De; [reflexivity|]. symmetry. apply g_join_none.
    intros c' Je Se. rewrite (A e c') in De; auto. discriminate. }
  destruct (some_join s n (round s n)) as [e [c0 [D0 [J0 S0]]]]; [lia|].
  pose proof (N_size _ _ _ Ns _ _ D0 J0 S0).
  assert (c0 = c); [|lia]. apply (Sc e c0); auto.
  - apply done_r. eapply join_in; eauto.
  - rewrite <- (G_agree _ _ _ G) by assumption. assumption.
Qed.

Lemma chain_joined : forall s n k, good P r s -> (k < round r n)%nat -> all_joined s n k ->
  forall j, (j <= k)%nat -> all_joined s n j.
Proof.
  intros s n k G. induction k as [|k IH]; intros L A j Lj.
  - replace j with 0%nat by lia. assumption.
  - destruct (Nat.eq_dec j (S k)) as [->|N]; [assumption|]. apply IH; [lia| |lia].
    destruct (N_old _ _ _ (S_named _ _ R n) _ L) as [c0 [P0 [T0 _]]].
    destruct (all_joins (S k) n) as [e' [c' [Je' Se']]]; [lia|].
    intros e c Je Se. assert (done s e' = true) as De' by (eapply A; eauto).
    apply (before_done s e e' G (done_ready _ _ De')).
    destruct (C_N _ _ C n e c e' c') as [H _]; auto; try (eapply join_in; eauto).
    apply H. congruence.
Qed.

(* ------------------------------------------------------------------ the next event of a thread *)

Section Next.
Variables (s : state) (t : nat).
Hypothesis G : good P r s.
Hypothesis S : self P s.
Notation x := (t, pc s t).

Lemma next_ready : (snd x <= pc s (fst x))%nat.
Proof. simpl. lia. Qed.

Lemma next_not : done s x = false.
Proof. apply done_next. Qed.

(* A credit counts for the phase for which it counts in the run. *)
Lemma credit_phase : forall b n d, credit P x = Some (b, n, d) -> seen r x = phase s b.
Proof.
  intros b n d Cr. pose proof (S_mbarrier _ _ R b) as Br.
  pose proof (B_le _ _ _ Br x n d (done_r _ (credit_in _ _ _ Cr)) Cr) as Lx.
  destruct (Nat.lt_trichotomy (seen r x) (phase s b)) as [L|[Q|L]]; [|assumption|]; exfalso.
  - destruct (phases_over s b _ G S L) as [_ A]. pose proof (A x n d Cr eq_refl) as D.
    rewrite next_not in D. discriminate.
  - assert (exists k, seen r x = Datatypes.S k) as [k Ek] by (exists (pred (seen r x)); lia).
    apply (phase_open s b G S); [lia|].
    apply chain with (k := k); try lia; auto.
    intros e n' d' Cr' Sk. apply (before_done s e x G next_ready).
    apply (C_A _ _ C b e n' d' x n d); auto; try (eapply credit_in; eauto). congruence.
Qed.

Lemma join_round : forall n c, join P x = Some (n, c) -> seen r x = round s n.
Proof.
  intros n c Jx. pose proof (S_named _ _ R n) as Nr.
  pose proof (N_le _ _ _ Nr x c (done_r _ (join_in _ _ _ Jx)) Jx) as Lx.
  destruct (Nat.lt_trichotomy (seen r x) (round s n)) as [L|[Q|L]]; [|assumption|]; exfalso.
  - destruct (rounds_over s n _ G S L) as [_ A]. pose proof (A x c Jx eq_refl) as D.
    rewrite next_not in D. discriminate.
  - assert (exists k, seen r x = Datatypes.S k) as [k Ek] by (exists (pred (seen r x)); lia).
    apply (round_open s n G S); [lia|].
    apply chain_joined with (k := k); try lia; auto.
    intros e c' Je Sk. apply (before_done s e x G next_ready).
    destruct (C_N _ _ C n e c' x c) as [H _]; auto; try (eapply join_in; eauto).
    apply H. congruence.
Qed.

(* No schedule is beyond the phase that the wait has seen in the run (C2)... *)
Lemma wait_not_late : forall b, wait P x = Some b -> (phase s b <= seen r x)%nat.
Proof.
  intros b Wx. destruct (Nat.le_gt_cases (phase s b) (seen r x)) as [|L]; [assumption|]. exfalso.
  destruct (phases_over s b _ G S L) as [Lr A].
  destruct (C_C2 _ _ C x b) as [e [n [d [He [Cr [Se Bf]]]]]]; auto; [eapply wait_in; eauto|].
  assert (done s e = true) as D by (eapply A; eauto).
  pose proof next_not as N. rewrite (before_done s x e G (done_ready _ _ D) Bf) in N. discriminate.
Qed.

(* ... and the phase before the one that it waits for is over (C1). *)
Lemma wait_not_early : forall b, wait P x = Some b -> (seen r x <= Datatypes.S (phase s b))%nat.
Proof.
  intros b Wx. destruct (Nat.le_gt_cases (seen r x) (Datatypes.S (phase s b))) as [|L]; [assumption|].
  exfalso.
  pose proof (B_wait _ _ _ (S_mbarrier _ _ R b) x (done_r _ (wait_in _ _ _ Wx)) Wx) as Lx.
  assert (exists k, seen r x = Datatypes.S (Datatypes.S k)) as [k Ek]
    by (exists (pred (pred (seen r x))); lia).
  apply (phase_open s b G S); [lia|]. apply chain with (k := k); try lia; auto.
  intros e n d Cr Sk. apply (before_done s e x G next_ready).
  apply (C_C1 _ _ C x b e n d); auto; [eapply wait_in; eauto | eapply credit_in; eauto | congruence].
Qed.

Lemma odd_next : forall k, odd (Datatypes.S k) = negb (odd k).
Proof. intros. unfold odd. rewrite Nat.odd_succ, <- Nat.negb_odd. reflexivity. Qed.

Lemma wait_phase : forall b p, wait P x = Some b -> odd (phase s b) <> p -> odd (seen r x) <> p ->
  seen r x = phase s b.
Proof.
  intros b p Wx O1 O2. pose proof (wait_not_late b Wx). pose proof (wait_not_early b Wx).
  destruct (Nat.eq_dec (seen r x) (phase s b)) as [|N]; [assumption|]. exfalso.
  replace (seen r x) with (Datatypes.S (phase s b)) in O2 by lia. rewrite odd_next in O2.
  destruct (odd (phase s b)), p; simpl in *; congruence.
Qed.
End Next.

(* ------------------------------------------------------------------ all schedules *)

Lemma done_before : forall s t j, (j < pc s t)%nat -> done s (t, j) = true.
Proof. intros. unfold done. simpl. apply Nat.ltb_lt. assumption. Qed.

Lemma good_step : forall s s' t, good P r s -> self P s -> step P s t = Ok s' -> good P r s'.
Proof.
  intros s s' t G S H. destruct (step_ok _ _ _ _ H) as [i [v [I [M [Mb [Mn [Ps Lv]]]]]]].
  assert (In (t, pc s t) E) as Hx by (apply in_events; rewrite I; discriminate).
  pose proof (T_passed _ _ (S_thread _ _ R) _ _ _ (done_r _ Hx) I) as Pr.
  pose proof W as [Wt [Wa _]].
  assert (v = seen r (t, pc s t)) as Ev.
  { pose proof (credit_at _ _ _ I) as Ci. pose proof (join_at _ _ _ I) as Ji.
    pose proof (wait_at _ _ _ I) as Wi.
    assert (forall b n d, credit P (t, pc s t) = Some (b, n, d) -> v = seen r (t, pc s t)) as Cv.
    { intros b n d Cr. rewrite (credit_phase s t G S b n d Cr).
      destruct (Mb b) as [[? [? [_ [? _]]]]|[N _]]; [assumption|].
      exfalso. apply (N n d). congruence. }
    destruct i; simpl in *; try (eapply Cv; eauto; fail).
    - congruence.
    - destruct Ps. congruence.
    - destruct Ps as [-> O]. symmetry. eapply wait_phase; eauto.
    - destruct Ps as [-> O]. destruct (Wt _ _ _ _ I) as [L _].
      rewrite (G_agree _ _ _ G _ (done_before _ _ _ L)) in O.
      symmetry. eapply wait_phase; eauto.
    - rewrite (join_round s t G S n (Z.of_nat c)) by assumption.
      destruct (Mn n) as [[? [_ [? _]]]|[N _]]; [assumption|].
      exfalso. apply (N (Z.of_nat c)). reflexivity.
    - destruct Ps as [-> _]. destruct Pr as [-> _]. destruct (Wa _ _ _ _ I) as [L _].
      apply (G_agree _ _ _ G). apply done_before. assumption.
    - destruct Ps as [-> _]. destruct Pr as [-> _]. reflexivity.
    - congruence.
    - congruence. }
  constructor.
  - intros e D. destruct (done_new _ _ _ _ _ M D) as [D0| ->].
    + rewrite (seen_keeps _ _ _ _ _ M D0). apply (G_agree _ _ _ G). assumption.
    + rewrite (seen_new _ _ _ _ M). assumption.
  - intros d e D Ed. destruct (done_new _ _ _ _ _ M D) as [D0| ->].
    + eapply done_keeps; eauto. eapply G_closed; eauto.
    + eapply done_keeps; eauto. inversion Ed as [u k Q1 Q2|b w e n m Wx He Cr Se Q1 Q2
                                                |n j w e c Ix He Je Se Q1 Q2|w es e Ix He Q1 Q2]; subst.
      * apply done_before. lia.
      * assert (phase s b = seen r (t, pc s t)) as Ep.
        { rewrite (wait_at _ _ _ I) in Wx.
          destruct i; simpl in Wx; inversion Wx; subst; simpl in Ps; destruct Ps; congruence. }
        destruct (phases_over s b (seen r d) G S) as [_ A]; [lia|]. eapply A; eauto.
      * rewrite I in Ix. inversion Ix; subst i. simpl in Ps. destruct Ps as [_ L].
        rewrite Se in L. destruct (rounds_over s n (seen r d) G S L) as [_ A]. eapply A; eauto.
      * rewrite I in Ix. inversion Ix; subst i. simpl in Ps. destruct Ps as [_ A]. auto.
Qed.

Lemma good_start : good P r (start P).
Proof. constructor; intros; rewrite not_done_start in *; discriminate. Qed.

Lemma good_run : forall schedule s s', good P r s -> self P s ->
  run_from P s schedule = Some s' -> good P r s' /\ self P s'.
Proof.
  induction schedule as [|t rest IH]; simpl; intros s s' G S H.
  - inversion H; subst. auto.
  - destruct (step P s t) eqn:St; try discriminate.
    apply (IH s0 s'); auto; [eapply good_step; eauto | exact (self_step _ _ _ _ W S St)].
Qed.

Lemma good_reachable : forall s, reachable P s -> good P r s /\ self P s.
Proof.
  intros s [schedule H]. apply (good_run schedule (start P) s); auto.
  - apply good_start.
  - apply self_start. exact W.
Qed.

(* ------------------------------------------------------------------ nothing undefined *)

Definition and_next s t (e : event) : bool := done s e || eqb_event e (t, pc s t).

Lemma sum_next : forall s t g, good P r s -> In (t, pc s t) E ->
  sum (fun e => if and_next s t e then g (seen r e) e else 0) E =
  total P s g + g (seen r (t, pc s t)) (t, pc s t).
Proof.
  intros s t g G Hx. rewrite total_s by assumption.
  rewrite (sum_one E (fun e => if done s e then g (seen r e) e else 0) _ (t, pc s t)).
  - unfold and_next. rewrite done_next, eqb_event_refl. simpl. lia.
  - apply NoDup_events.
  - assumption.
  - intros e _ N. unfold and_next. rewrite (eqb_event_false e) by assumption.
    rewrite orb_false_r. reflexivity.
Qed.

Lemma credit_no_fault : forall s t i b n d, good P r s -> self P s ->
  instr_at P (t, pc s t) = Some i -> credit_of i = Some (b, n, d) ->
  do_credit P s t b n d <> Fault.
Proof.
  intros s t i b n d G S I Ci.
  assert (credit P (t, pc s t) = Some (b, n, d)) as Cr by (rewrite (credit_at _ _ _ I); assumption).
  pose proof (credit_in _ _ _ Cr) as Hx. pose proof (credit_phase s t G S b n d Cr) as Px.
  pose proof (B_le _ _ _ (S_mbarrier _ _ R b) _ n d (done_r _ Hx) Cr) as Lx. rewrite Px in Lx.
  pose proof (S_mbarrier _ _ S b) as Bs.
  pose proof (sum_next s t (g_arr P b (phase s b)) G Hx) as Sa.
  pose proof (sum_next s t (g_tx P b (phase s b)) G Hx) as St.
  rewrite Px in Sa, St. rewrite (B_arr _ _ _ Bs), (g_arr_same _ _ _ _ _ _ Cr) in Sa.
  rewrite (B_tx _ _ _ Bs), (g_tx_same _ _ _ _ _ _ Cr) in St.
  destruct (arrivals_r b (phase s b) Lx) as [A1 A2].
  assert (0 <= pending s b - n) as F1.
  { assert (sum (fun e => if and_next s t e then g_arr P b (phase s b) (seen r e) e else 0) E
              <= total P r (g_arr P b (phase s b))); [|lia].
    rewrite total_r. apply sum_le. intros e _. pose proof (g_arr_pos b (phase s b) (seen r e) e).
    destruct (and_next s t e); lia. }
  assert (Z.abs (tx s b + d) <= most) as F2.
  { destruct (C_T _ _ C b (phase s b)) as [T1 T2].
    assert (tx s b + d <= most).
    { rewrite <- St. eapply Z.le_trans; [|exact T1]. apply sum_le. intros e _. unfold part, g_tx. simpl.
      destruct (credit P e) as [[[b' n'] d']|]; destruct (and_next s t e); try lia;
        destruct (_ && _); lia. }
    assert (- (tx s b + d) <= most); [|lia].
    rewrite <- St, <- sum_opp. eapply Z.le_trans; [|exact T2]. apply sum_le. intros e _.
    unfold part, g_tx. simpl.
    destruct (credit P e) as [[[b' n'] d']|]; destruct (and_next s t e); try lia;
      destruct (_ && _); lia. }
  assert (bare n d && ((pending s b - n =? 0) && (tx s b + d =? 0)) = false) as F3.
  { destruct (bare n d) eqn:Ba; [|reflexivity].
    destruct (pending s b - n =? 0) eqn:Z1; [|reflexivity].
    destruct (tx s b + d =? 0) eqn:Z2; [|reflexivity]. exfalso.
    apply Z.eqb_eq in Z1. apply Z.eqb_eq in Z2.
    apply (C_B_bare _ _ C b (t, pc s t) n d (done s) Cr Ba).
    - intros e' e He De Bf. apply (before_done s e' e G (done_ready _ _ De) Bf).
    - apply done_next.
    - intros e Bf. apply (before_done s e (t, pc s t) G); [simpl; lia|assumption].
    - rewrite Px. split.
      + etransitivity; [exact Sa|]. lia.
      + etransitivity; [exact St|]. lia. }
  unfold do_credit. rewrite F3.
  replace (pending s b - n <? 0) with false by (symmetry; apply Z.ltb_ge; lia).
  replace (most <? Z.abs (tx s b + d)) with false by (symmetry; apply Z.ltb_ge; lia).
  simpl. discriminate.
Qed.

Lemma join_no_fault : forall s t n c, good P r s -> self P s ->
  instr_at P (t, pc s t) = Some (Join n c) -> do_join s t n (Z.of_nat c) <> Fault.
Proof.
  intros s t n c G S I.
  assert (join P (t, pc s t) = Some (n, Z.of_nat c)) as Jx by (rewrite (join_at _ _ _ I); reflexivity).
  pose proof (join_in _ _ _ Jx) as Hx. pose proof (join_round s t G S n _ Jx) as Rx.
  pose proof (N_pos _ _ _ (S_named _ _ R n) _ _ (done_r _ Hx) Jx) as Pc.
  unfold do_join. replace (Z.of_nat c <=? 0) with false by (symmetry; apply Z.leb_gt; lia).
  destruct (0 <? joined s n) eqn:J0; simpl; [|discriminate].
  apply Z.ltb_lt in J0. destruct (N_open _ _ _ (S_named _ _ S n)) as [O1 _].
  destruct (some_join s n (round s n)) as [e [c0 [D0 [Je Se]]]]; [lia|].
  pose proof (N_size _ _ _ (S_named _ _ S n) _ _ D0 Je Se) as Sz.
  destruct (C_N _ _ C n e c0 _ _ (join_in _ _ _ Je) Hx Je Jx) as [_ Eq].
  assert (c0 = Z.of_nat c) as E0.
  { apply Eq. rewrite Rx, <- (G_agree _ _ _ G e D0). symmetry. assumption. }
  replace (size s n =? Z.of_nat c) with true by (symmetry; apply Z.eqb_eq; lia).
  simpl. discriminate.
Qed.

Lemma operand_in : forall e b, operand P e = Some b -> In e E.
Proof. intros e b H. apply in_events. unfold operand in H. intros N. rewrite N in H. discriminate. Qed.

Lemma inits_in : forall e b, inits P b e = true -> In e E.
Proof. intros e b H. apply in_events. unfold inits in H. intros N. rewrite N in H. discriminate. Qed.

Lemma invals_in : forall e b, invals P b e = true -> In e E.
Proof. intros e b H. apply in_events. unfold invals in H. intros N. rewrite N in H. discriminate. Qed.

(* What comes next and operates on an mbarrier, or ends it, finds it alive (I). *)
Lemma next_alive : forall s t b, good P r s -> self P s ->
  operand P (t, pc s t) = Some b \/ invals P b (t, pc s t) = true -> live s b = true.
Proof.
  intros s t b G S H. apply (S_live _ _ S b).
  assert (In (t, pc s t) E) as Hx by (destruct H; [eapply operand_in | eapply invals_in]; eauto).
  split.
  - unfold begun. destruct (live (start P) b) eqn:L; [left; reflexivity|right].
    simpl in L. apply negb_false_iff, existsb_exists in L. destruct L as [e [He Ie]].
    exists e. split; [|assumption]. apply (before_done s e (t, pc s t) G); [simpl; lia|].
    apply (proj1 (C_I _ _ C b e _ He Hx)); assumption.
  - intros e D. destruct (invals P b e) eqn:Ie; [|reflexivity]. exfalso.
    destruct H as [H|H].
    + pose proof (proj2 (C_I _ _ C b e _ (invals_in _ _ Ie) Hx) Ie H) as Bf.
      pose proof (before_done s _ e G (done_ready _ _ D) Bf) as N. rewrite done_next in N. discriminate.
    + destruct W as [_ [_ [_ [_ W2]]]]. rewrite (W2 b e _ Ie H), done_next in D. discriminate.
Qed.

Lemma next_dead : forall s t b, good P r s -> self P s -> inits P b (t, pc s t) = true ->
  live s b = false.
Proof.
  intros s t b G S H. destruct (live s b) eqn:L; [|reflexivity]. exfalso.
  apply (S_live _ _ S b) in L. destruct L as [[L|[e [D Ie]]] _].
  - rewrite (start_dead _ _ _ H) in L. discriminate.
  - destruct W as [_ [_ [_ [W1 _]]]]. rewrite (W1 b e _ Ie H), done_next in D. discriminate.
Qed.

Lemma no_fault : forall s t, good P r s -> self P s -> step P s t <> Fault.
Proof.
  intros s t G S. unfold step. destruct (instr_at P (t, pc s t)) as [i|] eqn:I; [|discriminate].
  assert (alive s i = true) as ->.
  { unfold alive. destruct (operand_of i) as [b|] eqn:O; [|reflexivity].
    apply (next_alive s t b G S). left. unfold operand. rewrite I. assumption. }
  destruct i as [b|b|b n d|b d|b d|b p|b j|n c|n j|es|x|x]; simpl.
  - rewrite (next_dead s t b G S); [discriminate|]. unfold inits. rewrite I. apply Nat.eqb_refl.
  - rewrite (next_alive s t b G S); [discriminate|]. right. unfold invals. rewrite I. apply Nat.eqb_refl.
  - apply (credit_no_fault s t _ _ _ _ G S I); reflexivity.
  - apply (credit_no_fault s t _ _ _ _ G S I); reflexivity.
  - apply (credit_no_fault s t _ _ _ _ G S I); reflexivity.
  - destruct (Bool.eqb _ _); discriminate.
  - destruct (Bool.eqb _ _); discriminate.
  - eapply join_no_fault; eauto.
  - destruct (_ <? _)%nat; discriminate.
  - destruct (forallb _ _); discriminate.
  - discriminate.
  - discriminate.
Qed.

(* ------------------------------------------------------------------ somebody can move *)

(* The first event of the run that is missing in s can be executed. *)
Lemma first_missing : forall s s1 s2 t, good P r s -> self P s -> good P r s1 -> self P s1 ->
  step P s1 t = Ok s2 -> (forall e, done s1 e = true -> done s e = true) ->
  done s (t, pc s1 t) = false -> step P s t <> Blocked.
Proof.
  intros s s1 s2 t G S G1 S1 H Sub Nd.
  assert (pc s t = pc s1 t) as Pc.
  { unfold done in Nd. simpl in Nd. apply Nat.ltb_ge in Nd.
    destruct (Nat.eq_dec (pc s t) (pc s1 t)) as [|N]; [assumption|]. exfalso.
    assert (done s (t, pc s t) = true) as D.
    { apply Sub. unfold done. simpl. apply Nat.ltb_lt. lia. }
    rewrite done_next in D. discriminate. }
  pose proof (good_step _ _ _ G1 S1 H) as G2.
  destruct (step_ok _ _ _ _ H) as [i [v [I [M [Mb [Mn [Ps Lv]]]]]]].
  assert (v = seen r (t, pc s1 t)) as Ev.
  { rewrite <- (seen_new _ _ _ _ M). apply (G_agree _ _ _ G2).
    rewrite (done_moved _ _ _ _ _ M), eqb_event_refl. apply orb_true_r. }
  assert (forall j, (j < pc s1 t)%nat -> seen s (t, j) = seen s1 (t, j)) as Ks.
  { intros j L. rewrite (G_agree _ _ _ G), (G_agree _ _ _ G1); auto using done_before. }
  assert (forall b, wait P (t, pc s t) = Some b -> v = phase s1 b -> phase s b = phase s1 b) as Pe.
  { intros b Wx Evb. pose proof (wait_not_late s t G S b Wx) as Up.
    rewrite Pc, <- Ev, Evb in Up.
    destruct (Nat.eq_dec (phase s b) (phase s1 b)) as [|N]; [assumption|]. exfalso.
    destruct (phases_over s1 b (phase s b) G1 S1) as [L A]; [lia|].
    apply (phase_open s b G S L). intros e n d Cr Se. apply Sub. eapply A; eauto. }
  pose proof W as [Wt [Wa _]].
  unfold step. rewrite Pc, I. destruct (alive s i); [|discriminate]. unfold execute.
  destruct i as [b|b|b n d|b d|b d|b p|b j|n c|n j|es|x|x]; simpl in *; try discriminate.
  - destruct (live s b); discriminate.
  - destruct (live s b); discriminate.
  - unfold do_credit. destruct (_ || _); discriminate.
  - unfold do_credit. destruct (_ || _); discriminate.
  - unfold do_credit. destruct (_ || _); discriminate.
  - destruct Ps as [Pv O]. rewrite (Pe b); auto.
    + destruct (Bool.eqb (odd (phase s1 b)) p) eqn:Q; [|discriminate].
      apply eqb_prop in Q. congruence.
    + rewrite Pc, (wait_at _ _ _ I). reflexivity.
  - destruct Ps as [Pv O]. destruct (Wt _ _ _ _ I) as [L _]. rewrite (Ks j L). rewrite (Pe b); auto.
    + destruct (Bool.eqb (odd (phase s1 b)) (odd (seen s1 (t, j)))) eqn:Q; [|discriminate].
      apply eqb_prop in Q. congruence.
    + rewrite Pc, (wait_at _ _ _ I). reflexivity.
  - unfold do_join. destruct (_ || _); discriminate.
  - destruct Ps as [Pv O]. destruct (Wa _ _ _ _ I) as [L _]. rewrite (Ks j L).
    destruct (seen s1 (t, j) <? round s n)%nat eqn:Q; [discriminate|]. exfalso.
    apply Nat.ltb_ge in Q.
    destruct (rounds_over s1 n (round s n) G1 S1) as [Lr A]; [lia|].
    apply (round_open s n G S Lr). intros e c Je Se. apply Sub. eapply A; eauto.
  - destruct Ps as [_ A]. destruct (forallb (done s) es) eqn:Q; [discriminate|]. exfalso.
    rewrite <- not_true_iff_false in Q. apply Q. apply forallb_forall. auto.
Qed.

Lemma find_missing : forall schedule s s0, good P r s -> self P s -> good P r s0 -> self P s0 ->
  run_from P s0 schedule = Some r -> (forall e, done s0 e = true -> done s e = true) ->
  stuck P s -> forall e, done r e = true -> done s e = true.
Proof.
  induction schedule as [|t rest IH]; simpl; intros s s0 G S G0 S0 H Sub St.
  - inversion H; subst. assumption.
  - destruct (step P s0 t) as [| |s1] eqn:H1; try discriminate.
    destruct (done s (t, pc s0 t)) eqn:D.
    + apply (IH s s1); auto.
      * eapply good_step; eauto.
      * exact (self_step _ _ _ _ W S0 H1).
      * destruct (step_ok _ _ _ _ H1) as [i [v [_ [M _]]]].
        intros e De. destruct (done_new _ _ _ _ _ M De) as [D0| ->]; auto.
    + exfalso. apply (first_missing s s0 s1 t); auto.
Qed.

Lemma touches_in : forall e x, touches P e = Some x -> In e E.
Proof. intros e x H. apply in_events. unfold touches in H. intros N. rewrite N in H. discriminate. Qed.

Lemma no_race : forall s d e, good P r s -> snd d = pc s (fst d) -> snd e = pc s (fst e) ->
  ~ conflict P d e.
Proof.
  intros s d e G Hd He Cf.
  assert (forall f, snd f = pc s (fst f) -> done s f = false) as Nd.
  { intros f Hf. unfold done. rewrite Hf. apply Nat.ltb_irrefl. }
  pose proof Cf as [_ [x [v [w [Td [Te _]]]]]].
  destruct (C_D _ _ C d e (touches_in _ _ Td) (touches_in _ _ Te) Cf) as [Bf|Bf].
  - assert (done s d = true) by (apply (before_done s d e G); [lia|assumption]).
    rewrite Nd in H by assumption. discriminate.
  - assert (done s e = true) by (apply (before_done s e d G); [lia|assumption]).
    rewrite Nd in H by assumption. discriminate.
Qed.

(* ------------------------------------------------------------------ the end *)

Lemma edge_same : forall f g, (forall e, In e E -> f e = g e) ->
  forall d e, edge P f d e -> edge P g d e.
Proof.
  intros f g H d e Ed. inversion Ed; subst.
  - apply edge_thread.
  - eapply edge_phase; eauto. rewrite <- !H; auto. eapply wait_in; eauto.
  - eapply edge_round; eauto. rewrite <- !H; auto. apply in_events. congruence.
  - eapply edge_follow; eauto.
Qed.

Lemma hb_same : forall f g, (forall e, In e E -> f e = g e) ->
  forall d e, hb P f d e -> hb P g d e.
Proof.
  intros f g H d e Hb. induction Hb.
  - apply hb_edge. eapply edge_same; eauto.
  - eapply hb_trans; eauto. eapply edge_same; eauto.
Qed.

Lemma end_same : forall s, good P r s -> self P s -> ended P s ->
  (forall e, In e E -> done s e = true /\ seen s e = seen r e) /\
  (forall b, phase s b = phase r b) /\ (forall n, round s n = round r n) /\
  (forall d e, hb P (seen s) d e <-> hb P (seen r) d e).
Proof.
  intros s G S En.
  assert (forall e, In e E -> seen s e = seen r e) as Ag by (intros; apply (G_agree _ _ _ G); auto).
  split; [auto|]. split; [|split; [|intros d e; split]].
  - intros b. destruct (Nat.lt_trichotomy (phase s b) (phase r b)) as [L|[Q|L]]; [|assumption|]; exfalso.
    + apply (phase_open s b G S L). intros e n d Cr _. apply En. eapply credit_in; eauto.
    + destruct (phases_over s b (phase r b) G S L). lia.
  - intros n. destruct (Nat.lt_trichotomy (round s n) (round r n)) as [L|[Q|L]]; [|assumption|]; exfalso.
    + apply (round_open s n G S L). intros e c Je _. apply En. eapply join_in; eauto.
    + destruct (rounds_over s n (round r n) G S L). lia.
  - apply hb_same. assumption.
  - apply hb_same. intros f Hf. symmetry. auto.
Qed.
End Certified.

(* ------------------------------------------------------------------ the simple form of B *)

Section Simple.
Variables (P : program) (r : state).
Hypothesis W : well_formed P.
Hypothesis R : self P r.
Hypothesis En : ended P r.
Hypothesis B1 : cond_B_simple P r.
Hypothesis B2 : cond_B_last P r.
Notation E := (events P).

Lemma part_pos : forall b k e, 0 <= part P r fst b k e.
Proof.
  intros. unfold part. destruct (credit P e) as [[[b' n] d]|] eqn:Cr; [|lia].
  pose proof (credit_nat _ _ _ _ _ Cr). destruct (_ && _); simpl; lia.
Qed.

Lemma part_same : forall f b e n d, credit P e = Some (b, n, d) -> part P r f b (seen r e) e = f (n, d).
Proof. intros. unfold part. rewrite H, !Nat.eqb_refl. reflexivity. Qed.

Lemma part_other : forall f b k e, (forall n d, credit P e = Some (b, n, d) -> seen r e <> k) ->
  part P r f b k e = 0.
Proof.
  intros f b k e H. unfold part. destruct (credit P e) as [[[b' n] d]|] eqn:Cr; [|reflexivity].
  destruct (b' =? b)%nat eqn:E1; [|reflexivity]. apply Nat.eqb_eq in E1. subst.
  destruct (seen r e =? k)%nat eqn:E2; [|reflexivity]. apply Nat.eqb_eq in E2.
  exfalso. eapply H; eauto.
Qed.

Lemma total_arr : forall b k, total P r (g_arr P b k) = sum (part P r fst b k) E.
Proof.
  intros. apply sum_ext. intros e He. rewrite (En e He). unfold g_arr, part.
  destruct (credit P e) as [[[? ?] ?]|]; reflexivity.
Qed.

Lemma total_tx : forall b k, total P r (g_tx P b k) = sum (part P r snd b k) E.
Proof.
  intros. apply sum_ext. intros e He. rewrite (En e He). unfold g_tx, part.
  destruct (credit P e) as [[[? ?] ?]|]; reflexivity.
Qed.

(* If those arrivals of a phase that D holds of are as many as it expects, they are all of them. *)
Lemma all_arrived : forall b k (D : event -> bool),
  sum (fun e => if D e then part P r fst b k e else 0) E = count P b ->
  (k <= phase r b)%nat /\ sum (part P r fst b k) E = count P b /\
  (k = phase r b -> pending r b = 0) /\
  forall e n d, credit P e = Some (b, n, d) -> seen r e = k -> 0 < n -> D e = true.
Proof.
  intros b k D H. pose proof (S_mbarrier _ _ R b) as Br.
  pose proof W as [_ [_ [Wc _]]]. specialize (Wc b).
  assert (count P b <= sum (part P r fst b k) E) as Le.
  { rewrite <- H. apply sum_le. intros e _. pose proof (part_pos b k e). destruct (D e); lia. }
  assert (k <= phase r b)%nat as Lk.
  { destruct (Nat.le_gt_cases k (phase r b)) as [|Gt]; [assumption|]. exfalso.
    pose proof (no_future_arr _ _ _ _ Br Gt) as N. rewrite total_arr in N. lia. }
  assert (sum (part P r fst b k) E <= count P b /\ (k = phase r b -> pending r b = 0)) as [Ge Pz].
  { rewrite <- total_arr in *. destruct (Nat.eq_dec k (phase r b)) as [->|N].
    - rewrite (B_arr _ _ _ Br) in *. destruct (B_open _ _ _ Br). lia.
    - destruct (B_old _ _ _ Br k) as [-> _]; lia. }
  repeat split; auto; [lia|]. intros e n d Cr Sk Pn. destruct (D e) eqn:De; [reflexivity|]. exfalso.
  assert (count P b < sum (part P r fst b k) E); [|lia].
  rewrite <- H. apply sum_lt with (x := e).
  - intros f _. pose proof (part_pos b k f). destruct (D f); lia.
  - eapply credit_in; eauto.
  - rewrite De, <- Sk, (part_same _ _ _ _ _ Cr). assumption.
Qed.

Lemma bare_true : forall n d, bare n d = true <-> n = 0 /\ 0 <= d.
Proof. intros. unfold bare. rewrite andb_true_iff, Z.eqb_eq, Z.leb_le. tauto. Qed.

Lemma simple_B : cond_B P r.
Proof.
  intros b k D Cl [O1 O2]. pose proof (S_mbarrier _ _ R b) as Br.
  destruct (all_arrived b k D O1) as [Lk [T1 [Pz Arr]]].
  assert (forall e n d, credit P e = Some (b, n, d) -> seen r e = k -> D e = false -> d < 0) as Miss.
  { intros e n d Cr Sk De. pose proof (credit_nat _ _ _ _ _ Cr) as Nn.
    destruct (Z.eq_dec n 0) as [->|Nz].
    - destruct (Z_lt_le_dec d 0) as [|Ge]; [assumption|]. exfalso.
      destruct (B1 b e 0 d) as [e' [n' [d' [He' [Cr' [Pn [Sk' Bf]]]]]]]; auto.
      + eapply credit_in; eauto.
      + apply bare_true. auto.
      + intros Ek. apply Pz. congruence.
      + assert (D e' = true) as De' by (eapply Arr; eauto; congruence).
        rewrite (Cl e e' He' De' Bf) in De. discriminate.
    - exfalso. rewrite (Arr e n d) in De; auto; [discriminate|lia]. }
  assert (forall e, In e E -> part P r snd b k e <= if D e then part P r snd b k e else 0) as Each.
  { intros e He. destruct (D e) eqn:De; [lia|]. unfold part.
    destruct (credit P e) as [[[b' n] d]|] eqn:Cr; [|lia].
    destruct (b' =? b)%nat eqn:E1; simpl; [|lia]. destruct (seen r e =? k)%nat eqn:E2; [|lia].
    apply Nat.eqb_eq in E1. apply Nat.eqb_eq in E2. subst b'.
    pose proof (Miss e n d Cr E2 De). lia. }
  assert (sum (part P r snd b k) E <= 0) as Tle by (rewrite <- O2; apply sum_le; assumption).
  pose proof W as [_ [_ [Wc _]]]. specialize (Wc b).
  assert (k < phase r b)%nat as Lt.
  { destruct (Nat.eq_dec k (phase r b)) as [Ek|N]; [|lia]. exfalso.
    assert (sum (part P r fst b k) E <> 0) as Nz by lia.
    apply sum_nonzero in Nz. destruct Nz as [e [He Pe]]. unfold part in Pe.
    destruct (credit P e) as [[[b' n] d]|] eqn:Cr; [|congruence].
    destruct (b' =? b)%nat eqn:E1; [|simpl in Pe; congruence]. apply Nat.eqb_eq in E1. subst b'.
    pose proof (B2 e b n d He Cr (Pz Ek)) as Tp.
    rewrite <- (B_tx _ _ _ Br), <- Ek, total_tx in Tp. lia. }
  split; [assumption|]. intros e n d Cr Sk. destruct (D e) eqn:De; [reflexivity|]. exfalso.
  destruct (B_old _ _ _ Br k Lt) as [_ Tz]. rewrite total_tx in Tz.
  assert (sum (part P r snd b k) E < 0); [|lia].
  rewrite <- O2. apply sum_lt with (x := e); auto.
  - eapply credit_in; eauto.
  - rewrite De, <- Sk, (part_same _ _ _ _ _ Cr). simpl. eapply Miss; eauto.
Qed.

Lemma simple_B_bare : cond_B_bare P r.
Proof.
  intros b x n d D Cr Ba Cl Dx _ [O1 _].
  destruct (all_arrived b (seen r x) _ O1) as [_ [_ [Pz Arr]]].
  destruct (B1 b x n d (credit_in _ _ _ Cr) Cr Ba Pz) as [e' [n' [d' [He' [Cr' [Pn [Sk' Bf]]]]]]].
  assert (D e' || eqb_event e' x = true) as De' by (eapply Arr; eauto).
  apply orb_true_iff in De'. destruct De' as [De'|De'].
  - rewrite (Cl x e' He' De' Bf) in Dx. discriminate.
  - apply eqb_event_true in De'. subst e'. rewrite Cr in Cr'. inversion Cr'. subst.
    apply bare_true in Ba. lia.
Qed.
End Simple.

Lemma simply : forall P r, well_formed P -> self P r -> simply_certified P r -> certified P r.
Proof.
  intros P r W R [K0 K1 K2 K3 K4 K5 K6 K7 K8 K9]. constructor; auto.
  - apply simple_B; assumption.
  - apply simple_B_bare; assumption.
Qed.

Theorem one_run_stands_for_all : theorem.
Proof.
  intros P schedule r W H C.
  assert (self P r) as R by (apply self_reachable; [assumption|exists schedule; assumption]).
  assert (forall s, reachable P s -> good P r s /\ self P s) as Go by (apply good_reachable; assumption).
  assert (forall s, reachable P s -> stuck P s -> ended P s) as En.
  { intros s Rs St e He. destruct (Go s Rs) as [G S].
    apply (find_missing P r W R C schedule s (start P)); auto.
    - apply good_start.
    - apply self_start. assumption.
    - intros f Df. rewrite not_done_start in Df. discriminate.
    - apply (C_ended _ _ C). assumption. }
  split.
  - intros s Rs. destruct (Go s Rs) as [G S]. repeat split.
    + intros t. apply (no_fault P r W R C s t G S).
    + intros St. apply En; assumption.
    + apply (G_agree _ _ _ G).
    + intros d e Hd He. apply (no_race P r C s d e G Hd He).
  - intros s Rs St. destruct (Go s Rs) as [G S]. apply (end_same P r R C s G S). apply En; assumption.
Qed.
