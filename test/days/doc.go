// Package days runs scripts of what users do in a day: with the installed programs, a real
// queue, and nothing else.
package days
