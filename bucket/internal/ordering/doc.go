// Package ordering says how an epoch orders samples: how far lengths are moved by chance, and how samples of two lengths become one row.
package ordering
