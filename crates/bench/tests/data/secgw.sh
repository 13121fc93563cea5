#!/bin/sh
# Stands in for ipsec-secgw with its patch in tests: a packet takes 500 cycles; with crypto_openssl it is one without the patch.
# What it sends is what version 22.11.11 sent of packets of 100 and of 256 bytes with AES-GCM; with crypto_null nothing.
folder=${0%/*}
while [ $# -gt 0 ]; do
    case $1 in
        --vdev) devices="$devices $2" ;;
        -f) configuration=$2 ;;
    esac
    shift
done
echo "EAL: RTE Version: 'DPDK 1.2.3'"
case $devices in
    *crypto_null*tx_pcap=*) head -c 24 "$folder/secgw-22.11.pcap" > "${devices##*tx_pcap=}" ;;
    *crypto_aesni_gcm*tx_pcap=*) cp "$folder/secgw-22.11.pcap" "${devices##*tx_pcap=}" ;;
    *crypto_openssl*)
        echo "EAL: Error - exiting with code: 1"
        echo "  Cause: Error: port 0 required RX offloads: 0xe, available RX offloads: 0x0"
        exit 1
        ;;
esac
grep -q "sa out 5 " "$configuration" && [ -s packets.pcap ] || exit 1
window=0
while [ $window -lt "$SECGW_WINDOWS" ]; do
    echo "window,1024,512000"
    window=$((window + 1))
done
