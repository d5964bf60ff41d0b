// Package lsfstandin stands in for an LSF cluster in tests: a daemon that
// schedules with miniq's manager and runs jobs as real processes, and the
// programs bsub, bjobs, bmod … for a test's PATH. It is no LSF and is never
// installed. What its programs print and how they fail is that of a real
// LSF-compatible cluster (golden-tested on its transcripts), with the vices that a
// client must cope with:
//
//   - A requeued job shows RUN for a moment, then EXIT (130), missing from
//     `bjobs -u all`, then PEND.
//   - A job that has ended as EXIT comes back by brequeue -e, as long as it is known
//     (CLEAN_PERIOD), and is EXIT for a second more. Nothing tells the next run.
//   - A job runs in a shell of LSF's own, which outlives five signals; of the others it
//     dies, and the job may be DONE then.
//   - bstop frees no slot. (The manager does not learn of it: for it the job runs.)
//   - brun puts a job onto a full host. (Its slots are added to the host for the
//     one step that starts it, while a reservation keeps other jobs out.)
//   - Priorities beyond MAX_USER_PRIORITY are refused, and bmod on running jobs.
//   - btop says that it moved what it did not move; bkill of an array says
//     `Operation is in progress`, exits with 255 and does it.
//   - The lava flavour misreads options that it does not know: of `bsub -app x true`
//     it runs `x true`.
//   - `lsfstandin away DIR 5s` makes all of them fail for that time.
//   - The filter is called by bsub and bmod in the user's process, as esub is, and
//     can be bypassed.
package lsfstandin
