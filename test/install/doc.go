// Package install tries `make install` and `make uninstall`, and the service
// units that they bring.
package install
