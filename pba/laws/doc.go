// Package laws holds the laws that no plan may break, as property tests: random
// farms, the real planner and the real queue manager under virtual time, and
// judges that keep their own books and don't trust the planner's.
//
//	go test ./pba/laws -rapid.checks=20000
//
// The farms are drawn once and every law is checked on all of them; for a law that
// fails, the first farm that breaks it is reduced to a small one and printed.
package laws
