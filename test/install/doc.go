// Package install tests `make install` and `make uninstall`, and the service units that
// they install.
package install
