// Package laws holds the laws that no plan may break, as property tests: random
// farms, the real planner and the real queue manager under virtual time, and
// judges of their own that don't believe the planner's books.
//
//	go test ./pba/laws -rapid.checks=20000
//
// The farms are drawn once and every law looks at all of them; a law that fails
// lets rapid reduce its first farm to a small one and prints it.
package laws
