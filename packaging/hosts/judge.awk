# Judges what Slurm recorded of the farm's jobs, by `sacct --duplicates --allocations
# --parsable2 --noheader` with times as seconds since 1970:
#
#   JobID|Account|State|Submit|Start|End|NCPUS|NodeList
#
# -v slots='n1=2 n2=3': what each node has; -v owner=chipa: the account with guaranteed slots,
# which is owed -v owed=N of them; -v jobs=N: all jobs; -v promise=S: seconds from the
# submission to the start. It prints what it found, and ends with 1 if that is wrong.
BEGIN {
    FS = "|"
    n = split(slots, pair, " ")
    for (i = 1; i <= n; i++) {
        split(pair[i], half, "=")
        has[half[1]] = half[2]
    }
}
function wrong(text) {
    print "wrong: " text
    bad = 1
}
{
    state = $3
    sub(/ .*/, "", state) # CANCELLED by UID
    seen[$1]++
    if (state == "COMPLETED") done[$1]++
    else if (state != "REQUEUED" || $2 == owner) wrong("job " $1 " of " $2 " has a run that is " $3)
    else taken += $7
    if ($2 == owner) {
        late = $5 - $4
        if (late > latest) latest = late
        if (late > promise) wrong("job " $1 " of " owner " waited for " late " s, " promise " were promised")
    }
    if ($5 !~ /^[0-9]+$/ || $6 !~ /^[0-9]+$/) { # a job that was requeued before it started
        if (state != "REQUEUED") wrong("job " $1 " has no start or no end: " $0)
        next
    }
    if (!($8 in has)) wrong("job " $1 " ran on " $8)
    runs++
    node[runs] = $8; from[runs] = $5; to[runs] = $6; width[runs] = $7
}
END {
    # A node has most jobs when one of them has just started.
    for (i = 1; i <= runs; i++) {
        used = 0
        for (j = 1; j <= runs; j++)
            if (node[j] == node[i] && from[j] <= from[i] && from[i] < to[j]) used += width[j]
        if (used > has[node[i]]) wrong(node[i] " had " used " slots in use at " from[i])
    }
    for (job in seen) {
        all++
        if (done[job] != 1) wrong("job " job " ended " done[job] + 0 " times")
        if (seen[job] > 1) again++
    }
    if (all != jobs) wrong(all + 0 " jobs are recorded, " jobs " were submitted")
    if (taken != owed) wrong(taken + 0 " slots were preempted for " owed)
    printf "%d jobs, each ended once; %d ran again; %d slots were preempted for %d; the longest wait of %s was %d s\n", all, again, taken, owed, owner, latest
    exit bad
}
