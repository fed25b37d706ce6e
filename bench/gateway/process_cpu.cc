#include "bench/gateway/process_cpu.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace skein::bench {

double CpuSeconds(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  // The name in parentheses may hold spaces; utime and stime are the 12th and 13th field after it.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace skein::bench
