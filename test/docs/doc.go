// Package docs runs the commands that the documentation shows.
package docs
