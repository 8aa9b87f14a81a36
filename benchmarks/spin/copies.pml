/* One guarded buffer, event and stream, S times in one loop (benchmarks/designs.py: copies), for SPIN 6.5.2.
 *
 *   loop: for i in 0..S-1: copied[i].synchronize(); host[i].write();
 *                          device[i].copy_(host[i], non_blocking=True) on stream i; copied[i].record(stream i)
 *
 * One process per stream: a FIFO of commands. A copy has a beginning and an end, because it reads its source in
 * between; a record completes when the stream reaches it. The host's write asserts that no copy of that buffer is
 * enqueued or under way. The host may run ahead of a stream by what synchronize() allows, so a FIFO of 2 is enough.
 *
 * spin -a -DS=3 copies.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -m1000000
 */
#ifndef S
#define S 1
#endif

mtype = { copy, record };

chan stream[S] = [2] of { mtype };  /* what is enqueued and has not begun */
byte pending[S];                    /* copies enqueued that have not ended */
byte recorded[S];                   /* records enqueued that the stream has not reached */
byte host_version[S];               /* what the host wrote, modulo 2 */
byte device_version[S];             /* what the copy read */

proctype device(byte me)
{
    byte seen;
    do
    :: stream[me] ? copy ->
        seen = host_version[me];          /* reading begins */
        device_version[me] = seen;        /* reading ends */
        assert(seen == host_version[me]);
        pending[me]--
    :: stream[me] ? record -> recorded[me]--
    od
}

active proctype host()
{
    byte i;
    atomic {
        i = 0;
        do
        :: i < S -> run device(i); i++
        :: else -> break
        od
    }
    do
    :: i = 0;
        do
        :: i < S ->
            recorded[i] == 0;             /* copied[i].synchronize(); never recorded: at once (S18) */
            assert(pending[i] == 0);
            host_version[i] = 1 - host_version[i];
            pending[i]++;
            stream[i] ! copy;
            recorded[i]++;
            stream[i] ! record;
            i++
        :: else -> break
        od
    od
}
