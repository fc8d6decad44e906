#include "lab/scenario.h"
