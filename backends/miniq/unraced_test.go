//go:build !race

package miniq_test

const memoryFactor = 1
