module github.com/evenkeel/evenkeel/experiments/checkpoint/powerloss

go 1.26.0

require (
	github.com/evenkeel/evenkeel v0.0.0
	github.com/hanwen/go-fuse/v2 v2.12.1
)

require (
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/evenkeel/evenkeel => ../../..
