module github.com/allotment-hpc/allotment

go 1.26
