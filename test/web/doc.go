// Package web tests the management page in a real browser, over a farm that works:
// make test-web.
package web
