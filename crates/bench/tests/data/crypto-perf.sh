#!/bin/sh
# Stands in for dpdk-test-crypto-perf in tests: a packet takes as many cycles as it has bytes, crypto_openssl lacks everything, and there is no crypto_nowhere.
while [ $# -gt 0 ]; do
    case $1 in
        --devtype) device=$2 ;;
        --buffer-sz) sizes=$2 ;;
        --burst-sz) bursts=$2 ;;
        --total-ops) packets=$2 ;;
    esac
    shift
done
echo "EAL: RTE Version: 'DPDK 1.2.3'"
if [ "$device" = crypto_nowhere ]; then
    echo "EAL: failed to parse device \"$device\""
    echo "EAL: Error - exiting with code: 1"
    exit 1
fi
if [ "$device" = crypto_openssl ]; then
    echo "USER1: Crypto device type does not support capabilities requested"
    exit 1
fi
echo "ipsec_mb_create() line 140: IPSec Multi-buffer library version used: 4.5.6"
echo "#lcore id,Buffer Size(B),Burst Size,Enqueued,Dequeued,Failed Enq,Failed Deq,Ops(Millions),Throughput(Gbps),Cycles/Buf"
echo
for size in $(echo "$sizes" | tr , ' '); do
    for burst in $(echo "$bursts" | tr , ' '); do
        echo "1,$size,$burst,$packets,$packets,0,0,1.000,1.000,$size.000"
    done
done
