//go:build race

package miniq_test

// memoryFactor is how much more memory a program takes under the race detector
// (go.dev/doc/articles/race_detector: five to ten times).
const memoryFactor = 5
