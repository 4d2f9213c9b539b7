module evenkeel/experiments/checkpoint/powerloss

go 1.26.0

require (
	evenkeel v0.0.0
	github.com/hanwen/go-fuse/v2 v2.12.1
)

require (
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace evenkeel => ../../..
