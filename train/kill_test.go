package train_test

func killed() func() { return nil }
