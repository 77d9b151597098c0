"""The seeded fault campaign: real loads suffer faults at random moments; at the end, tables and files are compared.

    files      what a load loads, from the seed
    loader     the loader's process, forked off by one that has everything imported
    processes  starts, kills and interrupts loaders
    plant      the servers, relays, stores and small disks of one campaign
    ledger     what the ledger and pg_stat_activity say
    faults     the kinds of fault, one function each
    hosts      several loaders of one load, and their faults
    retries    retries of rejected records, and their faults
    scenario   one table, its load and its faults
    check      what must hold in the end
    record     the campaign's record and its summary

`python -m support.campaign` (make faults) runs it.
"""
