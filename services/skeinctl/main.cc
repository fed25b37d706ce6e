// skeinctl: the operator's command.
#include "services/skeinctl/command.h"

int main(int argc, char** argv) { return skein::services::RunSkeinctl(argc, argv); }
