// Package root tests the bundled queue of a whole machine: root's miniqd, and real users
// of the machine that use it and attack each other's jobs. It makes these users and
// removes them again. `make test-root` runs it, as root.
package root
