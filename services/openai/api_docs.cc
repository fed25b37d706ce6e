// Updates the tables in docs/api.md:   bazel run //services/openai:api_docs [FILE]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "services/openai/api_markdown.h"

int main(int argc, char** argv) {
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  const std::string path =
      argc > 1 ? argv[1] : std::string(workspace == nullptr ? "." : workspace) + "/docs/api.md";
  std::ostringstream page;
  page << std::ifstream(path).rdbuf();
  const std::string text = skein::services::openai::WithTables(page.str());
  if (text.empty()) {
    std::cerr << path << " lacks the two comment lines that enclose the tables\n";
    return 1;
  }
  std::ofstream(path) << text;
  return 0;
}
