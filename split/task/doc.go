// Package task is what runs on a host when work is split: it executes the items of
// one task and writes down what each of them gave. What it is told and what it
// answers are files in the split's directory, which all hosts share: N.task, N.out,
// N.new while it is at work. It links nothing that is slow to start.
package task
