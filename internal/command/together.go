package command

import "context"

// Together does things at the same time. It returns the error that came first, by
// which the others are called off.
func Together(ctx context.Context, things ...func(context.Context) error) (first error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(things))
	for _, do := range things {
		go func() { errs <- do(ctx) }()
	}
	for range things {
		if err := <-errs; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}
