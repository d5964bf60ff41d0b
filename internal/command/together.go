package command

import "context"

// Together calls functions concurrently, and returns when all have. It returns the first
// error, which cancels the context of the others.
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
