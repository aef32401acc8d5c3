# cmake -DIN=file -DOUT=file.c -DNAME=symbol -P embed.cmake: a file as bytes of a C array.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "#include \"daemon/metrics/metrics.h\"\n"
     "const unsigned char ${NAME}[] = { ${bytes} };\n"
     "const size_t ${NAME}_bytes = sizeof(${NAME});\n")
