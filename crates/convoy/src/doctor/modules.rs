//! Kernel modules by which the packet filter asks a gateway about packets.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::check::Check;

const ABOUT: &str = "kernel modules";
/// Modules that all of it needs, the ways to have each, and its use.
const NEEDED: [(&[&[&str]], &str); 5] = [
    (&[&["nfnetlink_queue"]], "hands packets over"),
    (&[&["nft_queue"], &["xt_NFQUEUE", "nft_compat"]], "lets rules do so"),
    (&[&["nft_ct"]], "lets rules see marks of flows"),
    (&[&["nft_fib_inet"]], "recognises packets for this host"),
    (&[&["nf_conntrack_netlink"]], "clears marks of flows"),
];

/// Purpose of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Policies that pass a part of what others protect.
    Policies,
    /// NAT that may make a protected packet of another one.
    Nat,
    /// Policies that may come.
    None,
}

/// Checks that the kernel has what questions need.
pub(super) fn look(root: &Path, need: Need) -> Check {
    let Some(there) = there(root) else {
        return Check::note(
            ABOUT,
            "unknown: this kernel's list of modules is not below /lib/modules; a gateway that lacks a module \
             does not start, and names it",
        );
    };
    let is_there = |ways: &[&[&str]]| {
        ways.iter().any(|way| way.iter().all(|name| there.contains(&name.replace('-', "_"))))
    };
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|(ways, _)| !is_there(ways))
        .map(|(ways, what)| {
            let ways: Vec<_> = ways.iter().map(|way| way.join(" with ")).collect();
            format!("{} ({what})", ways.join(" or "))
        })
        .collect();
    let missing = missing.join(", ");
    match (missing.is_empty(), need) {
        (true, _) => Check::ok(ABOUT, "the kernel can request verdicts on packets"),
        (false, Need::Nat) => Check::problem(
            ABOUT,
            format!(
                "missing: {missing}; there are NAT rules, and packets to which they give protected addresses \
                 are dropped, because the kernel cannot hand them over: install these modules (often in a \
                 package of extra modules for this kernel), or use no NAT for protected networks"
            ),
        ),
        (false, Need::Policies) => Check::problem(
            ABOUT,
            format!(
                "missing: {missing}; policies of the site bypass a part of what others protect, for which the \
                 kernel must request verdicts: install these modules (often in a package of extra modules for \
                 this kernel), or protect everything"
            ),
        ),
        (false, Need::None) => Check::note(
            ABOUT,
            format!(
                "missing: {missing}; policies that bypass a part of what others protect are refused, because \
                 the kernel cannot request verdicts"
            ),
        ),
    }
}

/// Names of modules that are loaded, built in, or can be loaded; none where there is no list.
fn there(root: &Path) -> Option<BTreeSet<String>> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let release = read(&root.join("proc/sys/kernel/osrelease"))?;
    let folder = root.join("lib/modules").join(release.trim());
    let lists = ["modules.builtin", "modules.dep"].map(|name| read(&folder.join(name)));
    if lists.iter().all(Option::is_none) {
        return None;
    }
    let loaded = read(&root.join("proc/modules")).unwrap_or_default();
    let loaded = loaded.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned);
    let files = lists.iter().flatten().flat_map(|list| list.lines());
    let named = files.filter_map(|line| {
        let path = line.split(':').next()?;
        let (name, _) = path.rsplit('/').next()?.split_once(".ko")?;
        Some(name.replace('-', "_"))
    });
    Some(loaded.chain(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Level;

    fn root(loaded: &str, builtin: &str, files: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/sys/kernel/osrelease", "6.1.0-convoy\n");
        put("proc/modules", loaded);
        put("lib/modules/6.1.0-convoy/modules.builtin", builtin);
        put("lib/modules/6.1.0-convoy/modules.dep", files);
        root
    }

    const MOST: &str = "kernel/net/netfilter/nfnetlink_queue.ko.xz: kernel/net/netfilter/nfnetlink.ko.xz\n\
                        kernel/net/netfilter/nft_ct.ko:\nkernel/net/netfilter/nft_fib_inet.ko.zst:\n";

    #[test]
    fn modules_that_are_missing_are_named_with_what_they_are_for() {
        let builtin = "kernel/net/netfilter/nf_conntrack_netlink.ko\n";
        let whole = root("nft_queue 16384 4 - Live 0x0\n", builtin, MOST);
        assert_eq!(look(whole.path(), Need::Policies).level, Level::Ok);
        let other = root("xt_NFQUEUE 1 0 - Live\nnft_compat 1 0 - Live\n", builtin, MOST);
        assert_eq!(look(other.path(), Need::Policies).level, Level::Ok);
        let half = root("xt_NFQUEUE 1 0 - Live\n", "", MOST);
        let check = look(half.path(), Need::Policies);
        assert_eq!(check.level, Level::Problem);
        assert!(check.found.contains("nft_queue or xt_NFQUEUE with nft_compat"), "{check:?}");
        assert!(check.found.contains("nf_conntrack_netlink (clears"), "{check:?}");
        assert!(!check.found.contains("nft_ct"), "{check:?}");
        // Who may never need them is told, and no more.
        assert_eq!(look(half.path(), Need::None).level, Level::Note);
        let behind_nat = look(half.path(), Need::Nat);
        assert_eq!(behind_nat.level, Level::Problem);
        assert!(behind_nat.found.contains("nft_queue or") && behind_nat.found.contains("NAT"));
    }

    #[test]
    fn without_a_list_nothing_is_said_to_be_missing() {
        let root = tempfile::tempdir().unwrap();
        let check = look(root.path(), Need::Policies);
        assert!(check.level == Level::Note && check.found.starts_with("unknown: "));
    }
}
