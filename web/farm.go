package web

func farmPage() page {
	return page{path: "/farm", name: "Farm", routes: map[string]handler{"GET /farm": showFarm}}
}

// showFarm shows hosts and pools as the last cycle saw them.
func showFarm(q *request) error {
	status, err := q.desk.Status(q.Context())
	if err != nil {
		return err
	}
	return q.show("farm", "Farm", status)
}
