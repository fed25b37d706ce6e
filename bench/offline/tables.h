// What the figures of bench/offline:figures share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "scheduler/simulator/offline/offline_job.h"

namespace skein::bench {

// "| what | paper | ours | ours / paper |", and a row of it. `paper`: the number that the prose
// states; null: none.
void PrintBesideHead(const char* title);
void PrintBeside(const std::string& what, std::optional<double> paper, double ours);

// Built-ins. REQUIRES: there are some with these names.
scheduler::OfflineProfile OfflineProfileOf(const char* model, const char* device, int64_t tp,
                                           double memory_share = 0.9);

// How a link and the reads of weights are counted.
enum class Reads {
  kModel,  // the link's peak in one direction; ranks - 1 slots, owners' links are shared
  // The paper's "Fetch" lines: both directions added up; slots are never short, links never shared.
  kPaper,
};

struct JobSetting {
  const char* model = "llama-3.1-70b";
  const char* device = "h20";
  int64_t tokens = 4096;  // S: of prompt and output, in the mean
  double memory_share = 0.9;
  Reads reads = Reads::kModel;
};
// Of 8 devices as instances of `tp`; the better of the two batching rules. Null: the weights or a
// request do not fit.
std::optional<scheduler::OfflineJobResult> BestJob(const JobSetting& setting, int64_t tp,
                                                   scheduler::OfflineStrategy strategy);
// The tp of the fastest, of `sizes`; null: none fits.
struct BestLayout {
  int64_t tp = 0;
  scheduler::OfflineJobResult job;
};
std::optional<BestLayout> BestOf(const JobSetting& setting, scheduler::OfflineStrategy strategy,
                                 std::initializer_list<int64_t> sizes);

// The figures, by the paper's numbers.
void PrintKvCapacity();                  // 2 (a), 5
void PrintOverlap();                     // 9
void PrintPeakShifting();                // 10
void PrintModes();                       // 11
void PrintCasVersions();                 // 14
void PrintUtilisation();                 // 2 (b)
void PrintThroughput(const char* name);  // 6 h20, 7 h200, 8 b200
void PrintLessMemory();                  // 12
void PrintAblation();                    // 13
void PrintShares();                      // 15

}  // namespace skein::bench
