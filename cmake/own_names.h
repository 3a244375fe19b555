#pragma once

// For NORMA_UNITY: names that several files of a room have in their unnamed namespaces, each for itself. Where such
// files are compiled as one, each has the name with a tail of its own; NORMA_FILE, which CMake defines anew for each,
// is that tail. Names that headers have, too, cannot be here: the files have to have different ones.

#define NORMA_OWN_NAME(NAME, FILE) NAME##_of_##FILE
#define NORMA_OWN(NAME, FILE) NORMA_OWN_NAME(NAME, FILE)

#define Build NORMA_OWN(Build, NORMA_FILE)
#define Entry NORMA_OWN(Entry, NORMA_FILE)
#define Estimate NORMA_OWN(Estimate, NORMA_FILE)
#define Header NORMA_OWN(Header, NORMA_FILE)
#define ModulePointer NORMA_OWN(ModulePointer, NORMA_FILE)
#define Runner NORMA_OWN(Runner, NORMA_FILE)
#define add_parts NORMA_OWN(add_parts, NORMA_FILE)
#define attributes_of NORMA_OWN(attributes_of, NORMA_FILE)
#define big_endian NORMA_OWN(big_endian, NORMA_FILE)
#define byte_at NORMA_OWN(byte_at, NORMA_FILE)
#define check_arguments NORMA_OWN(check_arguments, NORMA_FILE)
#define checkpoint_of NORMA_OWN(checkpoint_of, NORMA_FILE)
#define images_text NORMA_OWN(images_text, NORMA_FILE)
#define kFormat NORMA_OWN(kFormat, NORMA_FILE)
#define kGroups NORMA_OWN(kGroups, NORMA_FILE)
#define kHeight NORMA_OWN(kHeight, NORMA_FILE)
#define kMaxDepth NORMA_OWN(kMaxDepth, NORMA_FILE)
#define kMaxFile NORMA_OWN(kMaxFile, NORMA_FILE)
#define kMostCurves NORMA_OWN(kMostCurves, NORMA_FILE)
#define kOp NORMA_OWN(kOp, NORMA_FILE)
#define kOpenFigures NORMA_OWN(kOpenFigures, NORMA_FILE)
#define kPoints NORMA_OWN(kPoints, NORMA_FILE)
#define kVersion NORMA_OWN(kVersion, NORMA_FILE)
#define make_case NORMA_OWN(make_case, NORMA_FILE)
#define make_network NORMA_OWN(make_network, NORMA_FILE)
#define number_of NORMA_OWN(number_of, NORMA_FILE)
#define put_row NORMA_OWN(put_row, NORMA_FILE)
#define row_of NORMA_OWN(row_of, NORMA_FILE)
#define run_alone_or_together NORMA_OWN(run_alone_or_together, NORMA_FILE)
#define sentence_of NORMA_OWN(sentence_of, NORMA_FILE)
#define take_number NORMA_OWN(take_number, NORMA_FILE)
#define with_number NORMA_OWN(with_number, NORMA_FILE)
#define work_of NORMA_OWN(work_of, NORMA_FILE)
