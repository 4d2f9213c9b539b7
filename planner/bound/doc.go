// Package bound computes a time that no plan of a job takes less than, whatever its stages, devices and strategies. See Lower.
package bound
