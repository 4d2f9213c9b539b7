// Package bucket batches samples of unequal lengths so that every rank of a synchronous
// data-parallel job finishes each step at the same time, with no step out of memory.
//
//	lengths, _ := bucket.ReadLengths(f, "lengths.txt", bucket.LengthsOptions{})
//	table, _ := bucket.ReadTable(g, "table.csv")
//	cost, _ := bucket.NewCost(table, 0)
//	plan, _ := bucket.Make(lengths, cost, bucket.Config{Ranks: 8})
//	schedule := plan.Schedule(lengths, seed, epoch)
//	score := bucket.Judge(lengths, schedule, cost, plan.Speeds)
//
// The anchor search follows Huawei, training method for sequence models: each length gets
// the batch size that was recorded with the longest duration up to an anchor duration T,
// and T is moved until the epoch is shortest. Beside it stands dispatch by sorted
// duration: batches of the most efficient size, sorted by predicted duration and dealt to
// the ranks in groups. The mode with the smaller predicted epoch time is the default.
package bucket
