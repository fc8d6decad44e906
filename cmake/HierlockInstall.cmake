# Headers, library, tool, and what find_package and pkg-config need to find them. Nothing in the installed tree names the
# prefix, so that it can be moved.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hierlock")

install(TARGETS hierlock EXPORT hierlockTargets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT hierlockTargets NAMESPACE hierlock:: DESTINATION "${package_dir}")

# Each component: a library, and the file that hierlockConfig.cmake includes when it is asked for.
get_property(components GLOBAL PROPERTY HIERLOCK_COMPONENTS)
foreach(component IN LISTS components)
  install(TARGETS hierlock_component_${component} EXPORT hierlock-${component}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT hierlock-${component} NAMESPACE hierlock:: DESTINATION "${package_dir}")
endforeach()

configure_package_config_file(cmake/hierlockConfig.cmake.in "${PROJECT_BINARY_DIR}/package/hierlockConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the API.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/hierlockConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/package/hierlockConfig.cmake" "${PROJECT_BINARY_DIR}/package/hierlockConfigVersion.cmake"
  DESTINATION "${package_dir}")

file(RELATIVE_PATH HIERLOCK_PC_TO_PREFIX
  "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}/.")
string(REGEX REPLACE "/\\.?$" "" HIERLOCK_PC_TO_PREFIX "${HIERLOCK_PC_TO_PREFIX}")
configure_file(cmake/hierlock.pc.in "${PROJECT_BINARY_DIR}/package/hierlock.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/package/hierlock.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
foreach(component IN LISTS components)
  set(HIERLOCK_PC_NAME ${component})
  get_property(libraries GLOBAL PROPERTY HIERLOCK_COMPONENT_LIBS_${component})
  list(TRANSFORM libraries PREPEND -l)
  list(JOIN libraries " " HIERLOCK_PC_LIBS)
  configure_file(cmake/hierlock-component.pc.in "${PROJECT_BINARY_DIR}/package/hierlock-${component}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/package/hierlock-${component}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()

if(TARGET hierlock_tool_cli)
  if(BUILD_SHARED_LIBS)
    file(RELATIVE_PATH to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
    set_target_properties(hierlock_tool_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
  endif()
  install(TARGETS hierlock_tool_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  foreach(tool hierlock_tool_mysql hierlock_tool_lab)
    if(TARGET ${tool})
      if(BUILD_SHARED_LIBS)
        set_target_properties(${tool} PROPERTIES INSTALL_RPATH "$ORIGIN/../${to_lib}")
      endif()
      install(TARGETS ${tool} RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/hierlock")
    endif()
  endforeach()
  if(TARGET hierlock_tool_lab)
    install(DIRECTORY scenarios DESTINATION "${CMAKE_INSTALL_DATADIR}/hierlock" FILES_MATCHING PATTERN "*.scenario")
  endif()
endif()
# As they lie here: they name each other, and messages name them, as docs/mysql.md and the like.
install(FILES LICENSE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}" FILES_MATCHING PATTERN "*.md")
