# To be sourced. Source packages by apt, which checks them; $work is a folder for lists.

# read_lists PACKAGE: lists of source packages of their own, so that the system's stay as they are: those of its own releases
# (here), and of all of Debian's that its mirror has (all), with the versions of a package, newest first.
read_lists() {
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' \
        'Component: main' | sort -u > "$work/here.list"
    [ -s "$work/here.list" ] || return 1
    cp "$work/here.list" "$work/all.list"
    local mirror suite
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' \
        'Label: Debian' | head -n 1)
    for suite in ${mirror:+stable testing unstable experimental}; do
        echo "deb-src $mirror $suite main" >> "$work/all.list"
    done
    local list
    for list in here all; do
        mkdir -p "$work/$list/partial"
        apt_with $list apt-get -qq update || return 1
        apt_with $list apt-cache showsrc --only-source "$1" 2> /dev/null |
            sed -n 's/^Version: //p' | sort -Vru > "$work/$list.versions"
    done
}

# apt_with LIST COMMAND ARGUMENTS...: a command of apt with the lists here or all.
apt_with() {
    local list=$1 command=$2
    shift 2
    "$command" -o "Dir::Etc::SourceList=$work/$list.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$work/$list" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root "$@"
}
