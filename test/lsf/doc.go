// Package lsf tests Allotment on LSF, at the stand-in for it. `make test-lsf` runs it.
package lsf
