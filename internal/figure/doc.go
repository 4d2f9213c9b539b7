// Package figure draws what the packages of the core decide or measured: it turns their
// values into the panels of internal/chart. It stands above them, so that a program that
// uses the core links no fonts and no renderer.
//
// Profile draws a profile into a file; Timeline turns an iteration of a plan into a figure.
package figure
