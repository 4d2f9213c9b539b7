// Package ordering sorts the samples of an epoch by the groups of a mode, and draws the random numbers that move them.
package ordering

// Unit is the jitter that moves a sample by its whole length.
const Unit = 1 << 16

// MostWidth is the largest jitter.
const MostWidth = 3 * Unit

// FewGroups is the largest number of groups. If there are more lengths, a group has several.
const FewGroups = 1 << 20

// Mix joins two numbers to a seed (the finaliser of Steele et al., SplitMix, 2014).
func Mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 + b*0xbf58476d1ce4e5b9
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
