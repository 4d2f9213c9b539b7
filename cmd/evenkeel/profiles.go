package main

type profilesCmd struct{}

func (*profilesCmd) Run(*app) error { return nil }
