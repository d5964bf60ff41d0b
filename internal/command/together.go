package command

import "context"

// RunAll calls functions concurrently, and returns when all have. It returns the first
// error, which cancels the context of the others.
func RunAll(ctx context.Context, functions ...func(context.Context) error) (first error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(functions))
	for _, do := range functions {
		go func() { errs <- do(ctx) }()
	}
	for range functions {
		if err := <-errs; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}
