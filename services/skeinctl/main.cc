// skeinctl: the operator's command line.
#include "services/skeinctl/command.h"

int main(int argc, char** argv) { return skein::services::RunSkeinctl(argc, argv); }
