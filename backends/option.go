package backends

// Treatment says what becomes of an option of bsub's on one queuing system.
type Treatment uint8

// The treatments.
const (
	// Honoured: the option does what LSF documents, or what its note says.
	Honoured Treatment = iota
	// Ignored: the job is submitted without it, and its user is warned.
	Ignored
	// Refused: without it the job would do something else than its user
	// meant, so it is not submitted.
	Refused
)

func (t Treatment) String() string {
	switch t {
	case Honoured:
		return "honoured"
	case Ignored:
		return "ignored"
	case Refused:
	}
	return "refused"
}

// OptionMeaning is an option's treatment on one queuing system, and why, or how it
// is meant there.
type OptionMeaning struct {
	Treatment Treatment
	Note      string
}
