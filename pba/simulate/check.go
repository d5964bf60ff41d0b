package simulate

// checker looks by brute force for a set of victims that would have freed fewer
// slots beyond the need.
type checker struct{}
