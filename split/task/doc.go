// Package task is what runs on a host when work is split: it executes the items of
// one task and records what each of them wrote. Its order and its result are files in
// the split's directory, which all hosts share: N.task, N.out, and N.new while it is at
// work. It links nothing that is slow to start.
package task
