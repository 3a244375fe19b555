# Steps one thread of a kernel: gdb -batch -x step.gdb PROGRAM. The page explains each command.
set pagination off
set style enabled off
break kernels.h:35 if me == 32 && mask == 16
run
print me
print value
print of_warps[1]
next
next
next
next
print value
print of_warps[1]
