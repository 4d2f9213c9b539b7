// Package train is a small data-parallel trainer of real networks.
package train
