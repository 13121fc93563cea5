//! Functions and their instructions, read from what `llvm-objdump --disassemble` prints.

use std::collections::HashMap;

/// The path of the doors' trait, whose token stands behind it in a kernel's name.
const DOOR: &str = " as convoy_crypto::isa::x86::token::Behind<convoy_crypto::isa::x86::token::";
/// Parts of paths that the names of kernels leave out.
const MODULES: [&str; 2] = ["convoy_crypto::isa::x86::", "convoy_crypto::"];

/// An instruction, as llvm-mca reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    pub(crate) text: String,
}

impl Instruction {
    fn mnemonic(&self) -> &str {
        self.text.split_whitespace().next().unwrap_or_default()
    }

    /// True if it works on vector registers.
    pub(crate) fn is_vector(&self) -> bool {
        ["%xmm", "%ymm", "%zmm"].iter().any(|register| self.text.contains(register))
    }

    /// True if it only fills room.
    fn is_filler(&self) -> bool {
        let mnemonic = self.mnemonic();
        mnemonic.starts_with("nop") || matches!(mnemonic, "data16" | "int3")
    }

    fn is_call(&self) -> bool {
        self.mnemonic().starts_with("call")
    }

    fn is_return(&self) -> bool {
        self.mnemonic().starts_with("ret")
    }

    /// Target of a jump.
    pub(crate) fn jump(&self) -> Option<u64> {
        self.target().filter(|_| self.is_jump())
    }

    fn is_jump(&self) -> bool {
        self.text.starts_with('j')
    }

    /// The address behind the mnemonic.
    fn target(&self) -> Option<u64> {
        let target = self.text.split_whitespace().nth(1)?;
        u64::from_str_radix(target.strip_prefix("0x")?, 16).ok()
    }

    /// Flow to the instruction behind it, as far as it tells.
    fn flow(&self) -> Flow {
        let goes = self.is_call() || self.mnemonic() == "jmp";
        match self.target() {
            Some(target) if goes => Flow::To(target),
            _ if goes || self.is_jump() || self.is_return() => Flow::Open,
            _ => Flow::On,
        }
    }

    /// Text for llvm-mca, which takes every call for a hundred cycles in which the stack cannot be used: for calls and
    /// returns it has their work on the stack.
    pub(crate) fn told(&self) -> &str {
        match () {
            () if self.is_filler() => "",
            () if self.is_call() => "pushq $0",
            () if self.is_return() => "popq %r11",
            () => &self.text,
        }
    }
}

/// Successor of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next one.
    On,
    /// The one at an address.
    To(u64),
    /// It depends.
    Open,
}

/// A function of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) instructions: Vec<Instruction>,
}

/// A kernel's name: its task and the token of its door.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kernel {
    pub(crate) task: String,
    pub(crate) token: String,
}

impl Function {
    /// Kernel that the function is, if it is behind a door.
    pub(crate) fn kernel(&self) -> Option<Kernel> {
        let (task, token) = self.name.strip_prefix('<')?.split_once(DOOR)?;
        let token = token.strip_suffix(">>::door")?;
        Some(Kernel { task: short(task), token: token.to_owned() })
    }
}

/// A name without the modules that all kernels are in.
pub(crate) fn short(name: &str) -> String {
    MODULES.iter().fold(name.to_owned(), |name, module| name.replace(module, ""))
}

/// All functions of a program, by address.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) functions: Vec<Function>,
    /// For every address the function and the place in it.
    places: HashMap<u64, (usize, usize)>,
}

impl Listing {
    pub(crate) fn read(text: &str) -> Self {
        let mut functions: Vec<Function> = Vec::new();
        for line in text.lines() {
            if let Some(name) = function_name(line) {
                functions.push(Function { name: name.to_owned(), instructions: Vec::new() });
            } else if let (Some(function), Some(instruction)) =
                (functions.last_mut(), instruction(line))
            {
                function.instructions.push(instruction);
            }
        }
        let mut places = HashMap::new();
        for (which, function) in functions.iter().enumerate() {
            for (at, instruction) in function.instructions.iter().enumerate() {
                places.insert(instruction.address, (which, at));
            }
        }
        Self { functions, places }
    }

    /// The instruction at an address, and its function.
    pub(crate) fn at(&self, address: u64) -> Option<(&Function, &Instruction)> {
        let (function, at) = *self.places.get(&address)?;
        let function = self.functions.get(function)?;
        Some((function, function.instructions.get(at)?))
    }

    /// Successor of the instruction at an address, and the address of the one that is written behind it.
    pub(crate) fn flow(&self, address: u64) -> Option<(Flow, Option<u64>)> {
        let (function, at) = *self.places.get(&address)?;
        let instructions = &self.functions.get(function)?.instructions;
        let next = instructions.get(at + 1).map(|next| next.address);
        Some((instructions.get(at)?.flow(), next))
    }

    /// Address of the first instruction of the function of this name.
    pub(crate) fn entry(&self, name: &str) -> Option<u64> {
        let function = self.functions.iter().find(|function| function.name == name)?;
        function.instructions.first().map(|first| first.address)
    }
}

/// `0000000000001000 <name>:`
fn function_name(line: &str) -> Option<&str> {
    let (address, name) = line.split_once(" <")?;
    u64::from_str_radix(address, 16).ok()?;
    name.strip_suffix(">:")
}

/// `1000: jne 0x1234 <name+0x20>`, with tabs between, or with a comment behind `#`.
fn instruction(line: &str) -> Option<Instruction> {
    let (address, rest) = line.split_once(':')?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let text = rest.split(" # ").next()?.split(" <").next()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    (!words.is_empty()).then(|| Instruction { address, text: words.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
target/ports/convoy-ports:	file format elf64-x86-64

Disassembly of section .text:

0000000000001000 <<convoy_crypto::isa::x86::gcm::Long<convoy_crypto::op::SealOp, 4> as convoy_crypto::isa::x86::token::Behind<convoy_crypto::isa::x86::token::Vaes512>>::door>:
    1000:      	vmovdqa	-0x3294c(%rip), %xmm12  # 0xb100 <writev+0xb100>
    1008:      	nopw	%cs:(%rax,%rax)
    100e:      	jne	0x1000 <<convoy_crypto::x as y>::door>
    1010:      	retq

0000000000001020 <convoy_crypto::burst::seal_burst>:
    1020:      	callq	*0x2f(%rip)             # 0x1056 <a>
    1026:      	movabsq	$0x7ffffffffffffff0, %rdx # imm = 0x7FFFFFFFFFFFFFF0
    1030:      	jmp	0x1000 <<convoy_crypto::x as y>::door>
";

    #[test]
    fn functions_and_instructions_are_read() {
        let listing = Listing::read(TEXT);
        let [kernel, other] = &listing.functions[..] else { panic!("{listing:?}") };
        let name = Kernel { task: "gcm::Long<op::SealOp, 4>".into(), token: "Vaes512".into() };
        assert_eq!((kernel.kernel(), other.kernel()), (Some(name), None));
        let texts: Vec<&str> = kernel.instructions.iter().map(|one| one.text.as_str()).collect();
        let expected =
            ["vmovdqa -0x3294c(%rip), %xmm12", "nopw %cs:(%rax,%rax)", "jne 0x1000", "retq"];
        assert_eq!(texts, expected);
        assert!(kernel.instructions[0].is_vector() && !kernel.instructions[2].is_vector());
        assert_eq!(kernel.instructions[2].jump(), Some(0x1000));
        assert_eq!(listing.at(0x1026).unwrap().1.text, "movabsq $0x7ffffffffffffff0, %rdx");
        assert!(listing.at(0x1027).is_none());
    }

    #[test]
    fn calls_are_told_as_what_they_do_to_the_stack() {
        let listing = Listing::read(TEXT);
        let told = |address| listing.at(address).unwrap().1.told();
        assert_eq!((told(0x1020), told(0x1010), told(0x1008)), ("pushq $0", "popq %r11", ""));
        assert_eq!(told(0x100e), "jne 0x1000");
    }

    #[test]
    fn it_is_known_what_comes_next_or_that_it_is_open() {
        let listing = Listing::read(TEXT);
        assert_eq!(listing.flow(0x1000), Some((Flow::On, Some(0x1008))));
        assert_eq!(listing.flow(0x100e), Some((Flow::Open, Some(0x1010))));
        assert_eq!(listing.flow(0x1010), Some((Flow::Open, None)));
        // To an address in memory, and to one that is written down.
        assert_eq!(listing.flow(0x1020), Some((Flow::Open, Some(0x1026))));
        assert_eq!(listing.flow(0x1030), Some((Flow::To(0x1000), None)));
        assert_eq!(listing.flow(0x1031), None);
        assert_eq!(listing.entry("convoy_crypto::burst::seal_burst"), Some(0x1020));
        assert_eq!(listing.entry("seal_burst"), None);
    }
}
